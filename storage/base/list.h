/* An intrusive doubly linked list. A link is in at most one list; an unlinked link points to
 * itself. */
#ifndef ND_BASE_LIST_H
#define ND_BASE_LIST_H

#include "storage/base/compiler.h"

struct nd_list {
    struct nd_list *next, *prev;
};

#define ND_LIST_INIT(name)                                                                         \
    {                                                                                              \
        &(name), &(name)                                                                           \
    }
#define ND_LIST_FOREACH(head, link)                                                                \
    for (struct nd_list *link = (head)->next, *link##_next = link->next; link != (head);           \
         link = link##_next, link##_next = link->next)

static inline void nd_list_init(struct nd_list *head)
{
    head->next = head->prev = head;
}
static inline bool nd_list_empty(const struct nd_list *head)
{
    return head->next == head;
}
static inline void nd_list_append(struct nd_list *head, struct nd_list *link)
{
    link->prev = head->prev;
    link->next = head;
    head->prev->next = link;
    head->prev = link;
}
static inline void nd_list_prepend(struct nd_list *head, struct nd_list *link)
{
    nd_list_append(head->next, link);
}
static inline void nd_list_remove(struct nd_list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    link->next = link->prev = link;
}
static inline struct nd_list *nd_list_first(const struct nd_list *head)
{
    return nd_list_empty(head) ? NULL : head->next;
}
static inline struct nd_list *nd_list_pop(struct nd_list *head)
{
    struct nd_list *link = nd_list_first(head);
    if (link != NULL) {
        nd_list_remove(link);
    }
    return link;
}
/* All of `from` goes to the end of `to`; `from` is empty afterwards. */
static inline void nd_list_move(struct nd_list *to, struct nd_list *from)
{
    if (!nd_list_empty(from)) {
        from->next->prev = to->prev;
        to->prev->next = from->next;
        from->prev->next = to;
        to->prev = from->prev;
        nd_list_init(from);
    }
}

#endif
