/*
 * manager/publish.h
 *		Publishes counters, for views.
 */
#ifndef LE_MANAGER_PUBLISH_H
#define LE_MANAGER_PUBLISH_H

/*
 * Copies the core's counters to shared memory, where views read them.  Must not fail, because it runs after a
 * commit.
 */
extern void le_publish(void);

#endif /* LE_MANAGER_PUBLISH_H */
