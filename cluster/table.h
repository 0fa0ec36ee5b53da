/* All topics, by name in byte order: an immutable counted table that shares what it can with the
 * one it was made from. A change makes a new table by copying one chunk and the list of chunks (a
 * few microseconds at 10,000 topics); readers keep theirs as long as they like and need no lock.
 *
 * The table holds a reference to each of its records; what it returns is borrowed from the table.
 */
#ifndef ND_TOPIC_TABLE_H
#define ND_TOPIC_TABLE_H

#include "cluster/topic.h"

struct nd_topic_table;

struct nd_topic_table *nd_topic_table_new(void); /* empty; one reference, the caller's */
/* Of `count` records with ascending names; their references stay the caller's. */
struct nd_topic_table *nd_topic_table_build(const struct nd_topic *const *topics, size_t count);
/* @thread any */
struct nd_topic_table *nd_topic_table_ref(struct nd_topic_table *table);
void nd_topic_table_unref(struct nd_topic_table *table); /* NULL passes */

size_t nd_topic_table_count(const struct nd_topic_table *table);
/* NULL when there is none. */
const struct nd_topic *nd_topic_table_find(const struct nd_topic_table *table,
                                           struct nd_slice name);

/* A new table with `topic` in the place of its name. The record's reference stays the caller's. */
struct nd_topic_table *nd_topic_table_with(const struct nd_topic_table *table,
                                           const struct nd_topic *topic);
/* A new table without `name`, which must be there. */
struct nd_topic_table *nd_topic_table_without(const struct nd_topic_table *table,
                                              struct nd_slice name);

/* A walk in byte order: first the record above `after` (empty: the very first), then the rest.
 *   struct nd_topic_walk walk = nd_topic_table_walk(table, after);
 *   for (const struct nd_topic *topic; (topic = nd_topic_walk_next(&walk)) != NULL;) ... */
struct nd_topic_walk {
    const struct nd_topic_table *table;
    size_t chunk, index;
};
struct nd_topic_walk nd_topic_table_walk(const struct nd_topic_table *table, struct nd_slice after);
const struct nd_topic *nd_topic_walk_next(struct nd_topic_walk *walk);

/* Names in byte order; negative, 0, positive. */
int nd_topic_name_compare(struct nd_slice a, struct nd_slice b);

#endif
