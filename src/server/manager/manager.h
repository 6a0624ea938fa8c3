/*
 * manager/manager.h
 *		The manager of one database.
 *
 *	state.c		the shared state; state.h has the types
 *	manager.c	the process: start, main loop, sleep, exit
 *	replay.c	runs batches, and repeats a failed batch mailbox by mailbox
 *	batch.c		one batch: apply, write, reply
 *	take.c		order of service; applies requests and mail to the core
 *	apply.c		applies one command
 *	sync.c		applies one lease_sync()
 *	answer.c	finds mailboxes with work, and replies to them
 *	memory.c	memory of the core, and its limit
 *	reload.c	builds the core from the tables: at the start, and after a failed batch
 *	outage.c	handles the time in which nothing can be written
 *	looks.c		serves the requests that need not write, during an outage
 *	txn.c		transactions
 *	leave.c		work to be done before the process exits
 *	chores.c	work between batches: overdue fences, history, size of the tables
 *	deadlock.c	finds cycles of connections that wait for each other
 *	fillpage.c	pages of the live state, for views
 *	publish.c	counters, for views
 *	hints.c		hints, for the notifier
 */
#ifndef LE_MANAGER_H
#define LE_MANAGER_H

/* Entry point of the worker; the argument is the database's OID. */
extern PGDLLEXPORT void le_manager_main(Datum arg);

#endif /* LE_MANAGER_H */
