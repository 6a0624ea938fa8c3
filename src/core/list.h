/*
 * core/list.h
 *		Links that are members of the linked objects: for lists, and for the chains of hash
 *		tables.
 */
#ifndef LE_LIST_H
#define LE_LIST_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

/* Returns the object that has this link as a member. */
#define le_container(ptr, type, member) ((type *) ((char *) (ptr) -offsetof(type, member)))

/* A link in a list, or the head of a list.  A list is circular. */
typedef struct LeLink
{
	struct LeLink *prev, *next;
} LeLink;

static inline void
le_link_init(LeLink *head)
{
	head->prev = head->next = head;
}

static inline bool
le_link_empty(const LeLink *head)
{
	return head->next == head;
}

static inline bool
le_linked(const LeLink *link)
{
	return link->next != NULL;
}

static inline void
le_link_before(LeLink *next, LeLink *link)
{
	assert(!le_linked(link));
	link->prev = next->prev;
	link->next = next;
	next->prev->next = link;
	next->prev = link;
}

static inline void
le_unlink(LeLink *link)
{
	if (!le_linked(link))
		return;
	link->prev->next = link->next;
	link->next->prev = link->prev;
	link->prev = link->next = NULL;
}

#define le_link_foreach(it, nxt, head)                                                                       \
	for (LeLink *it = (head)->next, *nxt = it->next; it != (head); it = nxt, nxt = it->next)

/* A link in a chain of a hash table. */
typedef struct LeHashLink
{
	struct LeHashLink *next;
} LeHashLink;

/* A link that can be removed from its chain without walking along the chain. */
typedef struct LeHashBackLink
{
	LeHashLink link;
	LeHashLink **back; /* the pointer to this link; NULL = the link is in no chain */
} LeHashBackLink;

#endif /* LE_LIST_H */
