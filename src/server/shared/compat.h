/*
 * shared/compat.h
 *		Hides all differences between PostgreSQL 15, 16, 17, 18 and 19.
 */
#ifndef LE_COMPAT_H
#define LE_COMPAT_H

#include "postgres.h"

#include "access/heapam.h"
#include "access/tableam.h"
#include "access/visibilitymap.h"
#include "catalog/pg_database.h"
#include "catalog/pg_proc.h"
#include "commands/dbcommands.h"
#include "executor/executor.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "replication/syncrep.h"
#include "replication/walsender_private.h"
#include "storage/bufmgr.h"
#include "storage/lock.h"
#include "storage/proc.h"
#include "storage/shmem.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/lsyscache.h" /* declares get_database_name() in PostgreSQL 19 */
#include "utils/resowner.h"

#if PG_VERSION_NUM < 150000
#error "lock_election needs PostgreSQL 15 or newer"
#endif

/*
 * A package is built with the headers of one minor release, but servers of other minor releases load it.
 * Macros and inline functions of newer minor releases call functions that older servers do not have: since
 * 15.20, palloc_array() calls palloc_mul(), and heap_getattr() calls heap_datum_check().
 */
#undef palloc_array
#undef palloc0_array
#define palloc_array(type, count)               ((type *) palloc(mul_size(sizeof(type), (count))))
#define palloc0_array(type, count)              ((type *) palloc0(mul_size(sizeof(type), (count))))
#define le_getattr(tuple, attnum, desc, isnull) SPI_getbinval((tuple), (desc), (attnum), (isnull))

/* PostgreSQL 16 reports which kinds of indexes an update changes; the extension has no summarizing indexes */
#if PG_VERSION_NUM >= 160000
typedef TU_UpdateIndexes LeUpdateIndexes;
#define le_updates_keys(update_indexes) ((update_indexes) == TU_All)
#else
typedef bool LeUpdateIndexes;
#define le_updates_keys(update_indexes) (update_indexes)
#endif

/* PostgreSQL 16 checks the owner of any kind of object with the same function */
#if PG_VERSION_NUM >= 160000
#define le_database_owner(dboid, role) object_ownercheck(DatabaseRelationId, (dboid), (role))
#else
#define le_database_owner(dboid, role) pg_database_ownercheck((dboid), (role))
#endif

/* PostgreSQL 16 renames relfilenode numbers to relfile numbers */
#if PG_VERSION_NUM >= 160000
#define le_relfilenumber(rel) ((rel)->rd_locator.relNumber)
typedef RelFileNumber LeRelFileNumber;
#else
#define le_relfilenumber(rel) ((rel)->rd_node.relNode)
typedef Oid LeRelFileNumber;
#endif

/* PostgreSQL 18 drops the argument "run_once" of PortalRun(), because a portal always runs once */
#if PG_VERSION_NUM >= 180000
#define le_run_portal(portal, dest) ((void) PortalRun((portal), FETCH_ALL, false, (dest), (dest), NULL))
#else
#define le_run_portal(portal, dest) ((void) PortalRun((portal), FETCH_ALL, false, true, (dest), (dest), NULL))
#endif

/* PostgreSQL 17 has a variable for a process's own proc number */
#if PG_VERSION_NUM >= 170000
#include "storage/procnumber.h"
#define le_my_proc() ((int) MyProcNumber)
#else
#define le_my_proc() (MyProc->pgprocno)
#endif
#define le_proc(n) (&ProcGlobal->allProcs[n])

/* PostgreSQL 17 identifies virtual transactions by a proc number instead of a backend id */
#if PG_VERSION_NUM >= 170000
#include "storage/procarray.h"
#define le_vxid_proc(vxid) ProcNumberGetProc((vxid).procNumber)
#else
#include "storage/sinvaladt.h"
#define le_vxid_proc(vxid) BackendIdGetProc((vxid).backendId)
#endif

/* PostgreSQL 17 adds the argument "orstronger" to LockHeldByMe() */
#if PG_VERSION_NUM >= 170000
#define le_lock_held_by_me(tag, mode) LockHeldByMe((tag), (mode), false)
#else
#define le_lock_held_by_me(tag, mode) LockHeldByMe((tag), (mode))
#endif

/* PostgreSQL 19 records the kind of each process, 18 marks client backends, older releases mark all others */
#if PG_VERSION_NUM >= 190000
#define le_proc_is_client(proc) ((proc)->backendType == B_BACKEND)
#elif PG_VERSION_NUM >= 180000
#define le_proc_is_client(proc) ((proc)->isRegularBackend)
#else
#define le_proc_is_client(proc)                                                                              \
	(!(proc)->isBackgroundWorker && ((proc)->statusFlags & PROC_IS_AUTOVACUUM) == 0)
#endif

/* PostgreSQL 17 has infinite intervals */
#if PG_VERSION_NUM >= 170000
#define le_interval_infinite(interval) INTERVAL_NOT_FINITE(interval)
#else
#define le_interval_infinite(interval) false
#endif

/* PostgreSQL 16 declares the hooks of settings, such as assign_synchronous_commit(), in another header */
#if PG_VERSION_NUM >= 160000
#include "utils/guc_hooks.h"
#endif

/*
 * A byte in shared memory records whether there are synchronous standbys to wait for.  The byte was a bool;
 * PostgreSQL 15.13, 16.9 and 17.5 changed it to flags.  The headers describe only the minor release that the
 * library was built with, so the version of the running server decides how to read the byte.
 */
#ifdef SYNC_STANDBY_DEFINED
#define LE_SYNC_STANDBYS offsetof(WalSndCtlData, sync_standbys_status)
#else
#define LE_SYNC_STANDBYS offsetof(WalSndCtlData, sync_standbys_defined)
#endif
#define LE_SYNC_STANDBYS_KNOWN   0x01 /* the checkpointer has initialized the flags */
#define LE_SYNC_STANDBYS_DEFINED 0x02

static inline bool
le_sync_standbys_are_flags(int version)
{
	return version >= 180000 || (version >= 170005 && version < 180000) ||
		   (version >= 160009 && version < 170000) || (version >= 150013 && version < 160000);
}

/*
 * Returns whether there are synchronous standbys to wait for.  Interprets the byte according to the version
 * of the running server.
 */
static inline bool
le_sync_standbys_defined(void)
{
	static int version = 0;
	uint8 standbys = ((volatile uint8 *) WalSndCtl)[LE_SYNC_STANDBYS];

	if (version == 0)
		version = atoi(GetConfigOption("server_version_num", false, false));
	if (!le_sync_standbys_are_flags(version))
		return standbys != 0;

	/* Until the checkpointer of a starting server has set the flags, check the setting, like PostgreSQL. */
	if ((standbys & LE_SYNC_STANDBYS_KNOWN) == 0)
		return SyncRepStandbyNames != NULL && SyncRepStandbyNames[0] != '\0';
	return (standbys & LE_SYNC_STANDBYS_DEFINED) != 0;
}

/*
 * Declarations from libpq/libpq.h, which cannot be included, because it needs the headers of all libraries
 * that the server was built with.
 */
struct Port;
extern bool pq_check_connection(void);
extern int pq_setkeepalivesidle(int idle, struct Port *port);
extern int pq_setkeepalivesinterval(int interval, struct Port *port);
extern int pq_setkeepalivescount(int count, struct Port *port);
extern int pq_settcpusertimeout(int timeout, struct Port *port);
extern bool pq_is_reading_msg(void);
extern void pq_startmsgread(void);
extern void pq_endmsgread(void);
extern int pq_peekbyte(void);

/* PostgreSQL 17 replaces pq_buffer_has_data() with a function that returns the number of bytes */
#if PG_VERSION_NUM >= 170000
extern ssize_t pq_buffer_remaining_data(void);
#define le_buffer_has_data() (pq_buffer_remaining_data() > 0)
#else
extern bool pq_buffer_has_data(void);
#define le_buffer_has_data() pq_buffer_has_data()
#endif

/*
 * Returns the type of the client's next message if it has already arrived, otherwise 0.  The message stays
 * unread.
 */
static inline int
le_next_message(void)
{
	int type;

	if (pq_is_reading_msg() || !le_buffer_has_data())
		return 0;
	pq_startmsgread();
	type = pq_peekbyte();
	pq_endmsgread();
	return type;
}

/* PostgreSQL 17 lets extensions define wait events */
#if PG_VERSION_NUM >= 170000
#include "utils/wait_event.h"
#define le_new_wait_event(name) WaitEventExtensionNew(name)
#else
#include "utils/wait_event.h"
#define le_new_wait_event(name) ((void) (name), PG_WAIT_EXTENSION)
#endif

/* Exports an SQL function.  Before PostgreSQL 16, PG_FUNCTION_INFO_V1 does not export it. */
#define LE_FUNCTION(name)                                                                                    \
	extern PGDLLEXPORT Datum name(PG_FUNCTION_ARGS);                                                         \
	PG_FUNCTION_INFO_V1(name)

/* Exports an SQL function, and defines it: it returns the result of "call". */
#define LE_SQL_CALL(name, call)                                                                              \
	LE_FUNCTION(name);                                                                                       \
	Datum name(PG_FUNCTION_ARGS)                                                                             \
	{                                                                                                        \
		return call;                                                                                         \
	}

/* PostgreSQL 19 stores the tables that a statement writes to as a set; older releases have a list */
#if PG_VERSION_NUM >= 190000
#define le_statement_writes(stmt, index) bms_is_member((index), (stmt)->resultRelationRelids)
#else
#define le_statement_writes(stmt, index) list_member_int((stmt)->resultRelations, (index))
#endif

/* PostgreSQL 18 requires this attribute before the declaration instead of after it */
#if PG_VERSION_NUM >= 180000
#define LE_NORETURN pg_noreturn
#else
#define LE_NORETURN __attribute__((noreturn))
#endif

/* PostgreSQL 18 drops the argument "execute_once" of ExecutorRun() */
#if PG_VERSION_NUM >= 180000
#define LE_EXECUTOR_RUN_ARGS QueryDesc *queryDesc, ScanDirection direction, uint64 count
#define LE_EXECUTOR_RUN_PASS queryDesc, direction, count
#else
#define LE_EXECUTOR_RUN_ARGS QueryDesc *queryDesc, ScanDirection direction, uint64 count, bool execute_once
#define LE_EXECUTOR_RUN_PASS queryDesc, direction, count, execute_once
#endif

/* PostgreSQL 19 passes a second argument to signal handlers, and has a macro for ignoring a signal */
#if PG_VERSION_NUM >= 190000
#define LE_SIGNAL_PASS postgres_signal_arg, pg_siginfo
#else
#define LE_SIGNAL_PASS postgres_signal_arg
#endif
#ifndef PG_SIG_IGN
#define PG_SIG_IGN SIG_IGN
#endif

/* PostgreSQL 19 has a log level for each kind of process */
#if PG_VERSION_NUM >= 190000
#define le_log_min_messages (log_min_messages[MyBackendType])
#else
#define le_log_min_messages log_min_messages
#endif

/*
 * PostgreSQL 19 has options for writing rows, and flags for scans.  The update and the delete wait for a
 * transaction that is writing the same row; their result says what happened to the row.
 */
#if PG_VERSION_NUM >= 190000
#define le_tuple_update(rel, tid, tuple, command, failure, lockmode, update_indexes)                         \
	table_tuple_update((rel), (tid), (tuple), (command), 0, InvalidSnapshot, InvalidSnapshot, true,          \
					   (failure), (lockmode), (update_indexes))
#define le_tuple_delete(rel, tid, command, failure)                                                          \
	table_tuple_delete((rel), (tid), (command), 0, InvalidSnapshot, InvalidSnapshot, true, (failure))
#define le_beginscan_tidrange(rel, snapshot, min, max)                                                       \
	table_beginscan_tidrange((rel), (snapshot), (min), (max), SO_NONE)
#else
#define le_tuple_update(rel, tid, tuple, command, failure, lockmode, update_indexes)                         \
	table_tuple_update((rel), (tid), (tuple), (command), InvalidSnapshot, InvalidSnapshot, true, (failure),  \
					   (lockmode), (update_indexes))
#define le_tuple_delete(rel, tid, command, failure)                                                          \
	table_tuple_delete((rel), (tid), (command), InvalidSnapshot, InvalidSnapshot, true, (failure), false)
#define le_beginscan_tidrange(rel, snapshot, min, max)                                                       \
	table_beginscan_tidrange((rel), (snapshot), (min), (max))
#endif

/*
 * Creates the visibility map of a table, so that the map exists before the disk is full.  PostgreSQL 19 needs
 * the map of each page that it prunes, even in a scan, and creates a missing map.  On a full disk, it could
 * not create the map, and so could not read the table.  One page of the map covers more than BLCKSZ pages of
 * the table.
 */
static inline void
le_make_visibility_map(Relation rel)
{
#if PG_VERSION_NUM >= 190000
	BlockNumber blocks = RelationGetNumberOfBlocks(rel);
	Buffer vmbuffer = InvalidBuffer;

	for (BlockNumber block = 0; block == 0 || block < blocks; block += BLCKSZ)
		visibilitymap_pin(rel, block, &vmbuffer);
	ReleaseBuffer(vmbuffer);
#endif
}

/* Prunes a page that the caller is about to write: PostgreSQL 19 must not treat the caller as a reader. */
static inline void
le_prune_page(Relation rel, Buffer buffer)
{
#if PG_VERSION_NUM >= 190000
	Buffer vmbuffer = InvalidBuffer;

	heap_page_prune_opt(rel, buffer, &vmbuffer, false);
	if (BufferIsValid(vmbuffer))
		ReleaseBuffer(vmbuffer);
#else
	heap_page_prune_opt(rel, buffer);
#endif
}

/* PostgreSQL 19 moves make_new_heap() to another header, and lets the caller rebuild indexes after a swap */
#if PG_VERSION_NUM >= 190000
#include "commands/repack.h"
#define le_finish_heap_swap(table, copy, frozen_xid, cutoff_multi, persistence)                              \
	finish_heap_swap((table), (copy), false, false, true, true, true, (frozen_xid), (cutoff_multi),          \
					 (persistence))
#else
#include "commands/cluster.h"
#define le_finish_heap_swap(table, copy, frozen_xid, cutoff_multi, persistence)                              \
	finish_heap_swap((table), (copy), false, false, true, true, (frozen_xid), (cutoff_multi), (persistence))
#endif

/* Returns whether the current user may call the function. */
static inline bool
le_may_execute(Oid function)
{
#if PG_VERSION_NUM >= 160000
	return object_aclcheck(ProcedureRelationId, function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK;
#else
	return pg_proc_aclcheck(function, GetUserId(), ACL_EXECUTE) == ACLCHECK_OK;
#endif
}

#endif /* LE_COMPAT_H */
