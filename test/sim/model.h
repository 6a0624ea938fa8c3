/*
 * model.h
 *		The naive model: arrays with linear searches, and a second
 *		implementation of the rules of the contract.
 */
#ifndef MODEL_H
#define MODEL_H

#include "sim.h"

/* The strongest information that a client has got about the token. */
typedef enum Told
{
	TOLD_NOTHING,
	TOLD_PLACE,
	TOLD_HELD
} Told;

/* A failed batch has left this deadline in memory; the rows would leave less after a crash. */
typedef struct MUnsaved
{
	LeTime deadline, crash;
} MUnsaved;

typedef struct MEntry
{
	int64_t token;
	uint8_t kind;
	int name;
	LeMode mode;
	uint16_t member; /* number in its group, from 1 */
	bool group;      /* one of several entries with this token, in several locks */
	bool alone;      /* of a group, but without its lease: lapsed and the lease has ended, or evicted */
	bool evicted, told_evicted;
	LeTime most;                        /* evicted: time left over any restart */
	bool held, place, lapsed, answered, /* its waiter gets its reply in this batch */
		stored;                         /* its state was stored with a batch */
	int owner, value;
	int64_t lease;        /* a named one */
	LeTime ttl, deadline, /* of its own lease: of a group the same in all; or evicted */
		acquired, wait_until, closed_until, retry;
	MUnsaved unsaved;
	uint64_t session; /* the requesting session, while it exists */
	uint32_t sessno, role;
	uint64_t waiter; /* the session that waits for it */
	uint32_t waiter_sessno, wait_xact, wait_subxact, request;
	uint32_t count;
	Told told;
} MEntry;

typedef struct MHold
{
	int64_t token;
	uint8_t kind;
	int name;
	uint64_t session;
	uint32_t sessno, xact, subxact;
} MHold;

typedef struct MLease
{
	int64_t id;
	LeTime ttl, deadline;
	MUnsaved unsaved;
	uint32_t role;
	bool told; /* as in MEntry */
} MLease;

typedef struct MLock
{
	LeTime closed_until;
	uint32_t closed_by;
	LeTime unstored; /* the same, by a release whose reply was never sent */
	int64_t closer;  /* the token whose release has closed it */
	LeTime told;     /* closed_until, once the release has got its reply */
	int32_t permits;
	int64_t last_exclusive;
} MLock;

typedef struct MSession
{
	uint64_t id;
	uint32_t xact;
} MSession;

typedef struct MAnswer
{
	uint64_t session;
	uint32_t request;
	LeStatus status;
	int64_t token;
} MAnswer;

/* The state that a failed batch restores. */
typedef struct MState
{
	MEntry *entries; /* by token */
	int nentries, max_entries;
	MHold *holds;
	int nholds, max_holds;
	MLease *leases;
	int nleases, max_leases;
	MLock *locks; /* by name and kind */
	MSession *sessions;
} MState;

struct Model
{
	World *w;
	MState s;
	MState stored;
	MState failed; /* only entries and leases: of a batch that was not stored */
	MState disks[DISKS];
	int64_t next; /* revision */
	MAnswer *answers;
	int nanswers, max_answers;
	const LeReply *actual; /* the core's reply, where the contract leaves a choice */
	bool deferring;        /* several entries end at once: grants follow after all ends */
	int deferred[16384];   /* places in locks */
	int ndeferred;
};

static inline MLock *
m_lock(Model *m, uint8_t kind, int name)
{
	return &m->s.locks[name * 2 + (kind == LE_KIND_LOCK)];
}

extern MEntry *m_find(Model *m, uint8_t kind, int name, int64_t token);
extern MEntry *m_find_hold(Model *m, const MHold *hold);
extern LeEntry *m_core_entry(Model *m, const MEntry *e);
extern MEntry *m_first(Model *m, uint8_t kind, int name);
extern MLease *m_find_lease(Model *m, int64_t id);
extern void m_end(Model *m, MEntry *e, LeEnd how, LeTime closed_until, LeTime now);
extern bool m_close(MLock *lock, LeTime until, uint32_t role);
extern void m_remove(Model *m, const MEntry *e);
extern void m_end_lease(Model *m, int64_t id, LeEnd how, LeTime now);
extern void m_settle(Model *m, uint8_t kind, int name, LeTime now);
extern bool m_joins(Model *m, MEntry *head, LeTime now);
extern void m_answer(Model *m, MEntry *e, LeStatus status, int64_t token);
extern void m_renew(Model *m, MEntry *e, LeTime now);
extern MEntry *m_reentrant(Model *m, const MEntry *request, LeStatus core_says, int64_t core_token);
extern LeStatus m_reentry_status(const MEntry *holder, const MEntry *request);
extern LeStatus m_reenter(Model *m, MEntry *holder, const MEntry *request, LeTime now, bool *counted);
extern bool m_has_own_time(const MEntry *e);
extern LeTime m_time_left(Model *m, const MEntry *e, LeTime now);
extern int m_waiting(Model *m, uint8_t kind, int name);
extern int m_held(Model *m, uint8_t kind, int name);
extern bool m_on_hold(const MHold *hold, const MEntry *e);
extern void m_add_hold(Model *m, const MEntry *e, const LeCommand *cmd);
extern MEntry *m_insert(Model *m, const MEntry *e);
extern void m_lease_remove(Model *m, int64_t id);
extern void *m_grow(void *array, int n, int *max, size_t size);
extern uint32_t m_sessno(const Model *m, uint64_t session);
extern void model_adopt(Model *m, LeTime now);
extern void m_defer(Model *m);
extern void m_undefer(Model *m, LeTime now);
extern bool m_admits(Model *m, uint8_t kind, int name, LeMode mode, LeTime now);
extern void m_grant(Model *m, MEntry *e, LeTime now);
extern void m_touch(Model *m, const LeCommand *cmd, LeTime now);
extern LeStatus m_check_lease(Model *m, const LeCommand *cmd, LeTime now);
extern LeStatus m_check_use(Model *m, const LeCommand *cmd, const MEntry *e);
extern MEntry m_new_entry(const LeCommand *cmd, LeText name);
extern void m_set_wait(MEntry *e, const LeCommand *cmd, LeTime now);
extern bool m_counts_once(const MEntry *e);
extern void m_changed(Model *m, const MEntry *e);
extern bool m_own_holder(Model *m, const MEntry *request);
extern bool m_manages(const LeCommand *cmd, uint32_t role);
extern bool m_role_is_full(Model *m, uint32_t role, uint32_t more);
extern void m_release_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void m_await_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);
extern bool m_same_place(const MEntry *e, const MEntry *request);
extern void m_once_more(Model *m, MEntry *e, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void m_check_one(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);

/* --- model_force.c --- */

extern void m_force(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void m_evict(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void m_force_role(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);

/* --- model_group.c --- */

extern bool m_shares_time(const MEntry *e);
extern void m_share_time(Model *m, const MEntry *e);
extern bool m_leads(Model *m, int i);
extern void m_grant_group(Model *m, int64_t token, LeTime now);
extern void m_end_waiting_group(Model *m, int64_t token, LeTime now);
extern void m_expire_group(Model *m, int64_t token, LeTime closed_until, LeTime now);
extern bool m_ready(Model *m, const MEntry *head, LeTime now);
extern void m_acquire_group(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);
extern void m_await_group(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply);

#endif /* MODEL_H */
