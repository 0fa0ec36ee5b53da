/* Grants as rows of a stored message: what command.c and snapshot.c share. */
#ifndef ND_GRANT_ROWS_H
#define ND_GRANT_ROWS_H

#include "cluster/user.h"
#include "proto/narad/cluster/v1/command.pb-c.h"

/* An array of `count` pointers and the rows they point to, freed with one nd_free(). The rows
 * borrow the patterns. */
Narad__Cluster__V1__Grant **nd_grant_rows_fill(const struct nd_grant *grants, uint32_t count);
/* An array of grants that borrow the patterns of `rows`; the caller's, nd_free(). UNSUPPORTED: a
 * field or an action that this version does not know. The rules of grants are not looked at. */
ND_CHECKED enum nd_err nd_grant_rows_read(Narad__Cluster__V1__Grant *const *rows, size_t count,
                                          struct nd_grant **out);

#endif
