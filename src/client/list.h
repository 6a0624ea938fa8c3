/*
 * list.h
 *		Circular lists.
 */
#ifndef LE_CLIENT_LIST_H
#define LE_CLIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>

/* Head or link of a circular list.  A link in no list, and the head of an empty list, points to itself. */
typedef struct le_link
{
	struct le_link *next, *prev;
} le_link;

#define le_container(ptr, type, member) ((type *) ((char *) (ptr) -offsetof(type, member)))

static inline void
le_link_init(le_link *link)
{
	link->next = link->prev = link;
}

static inline bool
le_link_empty(const le_link *head)
{
	return head->next == head;
}

static inline void
le_link_remove(le_link *link)
{
	link->next->prev = link->prev;
	link->prev->next = link->next;
	le_link_init(link);
}

/* Moves a link from its list, if it is in one, to the end of a list. */
static inline void
le_link_append(le_link *head, le_link *link)
{
	le_link_remove(link);
	link->prev = head->prev;
	link->next = head;
	head->prev->next = link;
	head->prev = link;
}

/* Moves a link from its list, if it is in one, to the front of a list. */
static inline void
le_link_prepend(le_link *head, le_link *link)
{
	le_link_remove(link);
	le_link_append(head->next, link);
}

/* Loops over the items of a list.  The loop's body may remove the current item. */
#define le_foreach(type, item, head)                                                                         \
	for (type *item = le_container((head)->next, type, link), *item##_next;                                  \
		 item##_next = le_container(item->link.next, type, link), &item->link != (head); item = item##_next)

#endif /* LE_CLIENT_LIST_H */
