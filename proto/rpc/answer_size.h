/* How large an answer of a node may be: what clients of this tree take. Only the text of
 * Admin.Metrics comes near it; a stock client takes 4 MiB unless it is told otherwise. */
#ifndef ND_ANSWER_SIZE_H
#define ND_ANSWER_SIZE_H

enum { ND_ANSWER_BYTES_MAX = 64 << 20 };

#endif
