/* All users, by name in byte order: an immutable counted array. Users change rarely, so a change
 * copies the array of pointers (below a millisecond at 10,000 users); readers keep theirs as long
 * as they like and need no lock.
 *
 * The table holds a reference to each of its records; what it returns is borrowed from the table.
 */
#ifndef ND_USER_TABLE_H
#define ND_USER_TABLE_H

#include "cluster/user.h"

struct nd_user_table;

/* Of `count` records with ascending names; their references stay the caller's. One reference of the
 * table, the caller's. */
struct nd_user_table *nd_user_table_build(const struct nd_user *const *users, size_t count);
/* @thread any */
struct nd_user_table *nd_user_table_ref(struct nd_user_table *table);
void nd_user_table_unref(struct nd_user_table *table); /* NULL passes */

size_t nd_user_table_count(const struct nd_user_table *table);
const struct nd_user *nd_user_table_at(const struct nd_user_table *table, size_t index);
/* NULL when there is none. */
const struct nd_user *nd_user_table_find(const struct nd_user_table *table, struct nd_slice name);

/* A new table with `user` in the place of its name. The record's reference stays the caller's. */
struct nd_user_table *nd_user_table_with(const struct nd_user_table *table,
                                         const struct nd_user *user);
/* A new table without `name`, which must be there. */
struct nd_user_table *nd_user_table_without(const struct nd_user_table *table,
                                            struct nd_slice name);

#endif
