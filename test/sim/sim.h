/*
 * sim.h
 *		A world around the core: sessions, a store that can fail, a clock, and
 *		a naive model of the contract to compare with.
 *
 * Everything is drawn from one seed, so that a failure can be replayed.
 */
#ifndef SIM_H
#define SIM_H

#include <stdio.h>

#include "core/core.h"
#include "core/life.h"
#include "core/epoch.h"
#include "core/load.h"
#include "core/pause.h"

#define MAX_NAMES  512
#define MAX_OWNERS 16
#define MAX_BATCH  64 /* commands of a batch that clients fill */
#define MAX_GROUP  40 /* names in one command */
#define MAX_FENCES 8
#define KNOWN      1024 /* tokens that clients remember */
#define HISTORY    24   /* lines shown with a failure */

#define NO_OWNER (-1)

/* The number of a session identifies its client, as in the server. */
#define SESSION_CLIENTS 8192

typedef struct Rng
{
	uint64_t s[2];
} Rng;

static inline uint64_t
rng_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
	return x ^ (x >> 31);
}

static inline void
rng_seed(Rng *rng, uint64_t seed)
{
	rng->s[0] = rng_mix(seed + UINT64_C(0x9e3779b97f4a7c15));
	rng->s[1] = rng_mix(rng->s[0] + UINT64_C(0x9e3779b97f4a7c15));
}

static inline uint64_t
rng_next(Rng *rng)
{
	uint64_t a = rng->s[0], b = rng->s[1];

	rng->s[0] = b;
	a ^= a << 23;
	rng->s[1] = a ^ b ^ (a >> 17) ^ (b >> 26);
	return rng->s[1] + b;
}

static inline uint32_t
rng_below(Rng *rng, uint32_t n)
{
	return (uint32_t) (((rng_next(rng) >> 32) * n) >> 32);
}

static inline bool
rng_chance(Rng *rng, uint32_t per_mille)
{
	return rng_below(rng, 1000) < per_mille;
}

/* A deliberate fault of this world, which must be detected. */
typedef enum Broken
{
	BROKEN_NOTHING,
	BROKEN_ROW,    /* the store loses a row */
	BROKEN_WAKE_UP /* a waiter does not get its reply */
} Broken;

/* The choices of a seed. */
typedef struct Config
{
	uint64_t seed;
	bool model;
	bool verbose;
	bool mute;  /* no output for a failure, because it is run again */
	bool small; /* no world with a long run time */
	Broken broken;
	bool every;     /* check after every step, also in a large world */
	double seconds; /* limit of wall time for one run; 0: no limit */
	uint32_t sessions;
	int names;
	int owners;
	uint32_t check_every;
	uint32_t owner_mille;
	uint32_t shared_mille;
	uint32_t permit_mille;
	uint32_t lease_mille;
	uint32_t bound_mille;
	uint32_t enqueue_mille;
	uint32_t group_mille;
	uint32_t xact_mille;
	uint32_t fence_mille;
	uint32_t fail_mille;
	uint32_t restart_mille;
	uint32_t standby_mille; /* 1000: synchronous */
	uint32_t late_mille;
	uint32_t short_lives_mille; /* managers and servers restart often */
	uint32_t batch_mille;
	uint32_t tick_mille;
	bool keeper;           /* see keeper.c */
	bool outages;          /* time passes while a batch fails */
	bool right_clock;      /* the clock is right, and copies are restored */
	uint32_t later_mille;  /* releases that are written with a later batch; 0 if servers are lost */
	uint32_t async_mille;  /* see flush.c; 0: everything is flushed immediately */
	int64_t first_counter; /* of the first revision */
	LeLimits limits;
} Config;

/* A client's side of a session. */
typedef struct Client
{
	uint64_t id; /* 0: not connected */
	uint32_t role;
	uint32_t xact;
	uint32_t subxact;  /* newest number in this transaction */
	uint32_t stack[8]; /* open subtransactions */
	int depth;
	bool in_xact;
	bool busy; /* its request has no reply yet */
	uint32_t request;
	LeCommand more; /* the next step of a command that is not complete */
	bool has_more;
	int64_t forced_before; /* revision at the first step of a FORCE_ROLE */
} Client;

/* Mail to the manager, until all of it was processed. */
typedef struct Mail
{
	LeCommand cmd; /* UNDO or SESSION_END */
	bool waiting;
} Mail;

/*
 * What shared memory contains about a session after a crash of the manager, as
 * of the last stored batch.
 */
typedef struct Durable
{
	uint64_t id;
	uint32_t xact; /* the transaction whose holds can still be undone */
	bool waiting;
	LeCommand cmd; /* what it waits for */
	LeText names[MAX_GROUP];
	LeTime wait_until;
	int64_t lost; /* token that was granted and stored, but whose reply was lost */
} Durable;

typedef struct SlotRow
{
	bool used, held, evicted;
	uint8_t end; /* LeEnd of a lapsed holder */
	uint8_t kind, mode;
	int name, owner, value;
	int32_t number, permits;
	int64_t token, lease;
	LeTime ttl, time_left, acquired_at, closed_until;
	uint64_t session;
	uint32_t role, hold_count;
	LeStoredHold *uncommitted;
	uint32_t nuncommitted;
	uint32_t life;
	uint16_t member; /* number in a place of several names */
} SlotRow;

typedef struct LeaseRow
{
	bool used;
	int64_t id;
	LeTime ttl, time_left;
	uint32_t life;
	uint32_t role;
} LeaseRow;

typedef struct Table
{
	void *rows;
	size_t size;
	uint32_t len, cap, used;
	uint32_t *free_rows;
	uint32_t nfree;
} Table;

typedef struct Posted
{
	LeCommand cmd;
	LeText names[MAX_GROUP];
	LeReply reply;
	LeTime at;
} Posted;

typedef struct Known
{
	int64_t token;
	uint8_t kind;
	int owner;
	int64_t lease;
	uint32_t role;
	uint32_t epoch, epoch_is;
	uint32_t n; /* number of names; may be a group of one */
	uint16_t names[MAX_GROUP];
} Known;

/* The state of an election by its history. */
typedef struct Story
{
	int64_t term; /* 0: vacant */
	int value;
	int64_t last; /* number of the newest change */
} Story;

/* Indexes of World.tables. */
enum
{
	TABLE_SLOTS,
	TABLE_LEASES,
	TABLE_PLACES,
	TABLES
};

/* The row with the state at the server's start. */
typedef struct Meta
{
	int64_t incarnation;
	LeTime taken_at;
	uint32_t timeline;
	LeLife life;
} Meta;

#define MINUTE            (60 * LE_SECOND)
#define FIRST_INCARNATION 1000 /* at minute 1000 */

/* States of disks other than the server's own. */
enum
{
	DISK_STANDBY,
	DISK_COPY,    /* may be restored */
	DISK_FLUSHED, /* the state after a crash, while something is not flushed */
	DISKS
};

/* The contents of a disk. */
typedef struct Disk
{
	Table tables[TABLES];
	Story *stories;
	int64_t last_change;
	Meta meta;
	uint32_t lost_starts; /* starts that it has not received */
} Disk;

/* What is lost when a core is rebuilt. */
typedef enum Loss
{
	LOST_BATCH,   /* the batch that was not written */
	LOST_MANAGER, /* also everything that was only in memory */
	LOST_SERVER   /* also all connections */
} Loss;

typedef struct Model Model;

/* See keeper.c. */
typedef struct Keeper
{
	int64_t lease; /* 0: none */
	LeTime next;   /* time of the next renewal, on the world's clock */
	LeTime until;  /* end of the validity that was returned to it */
	bool raised;   /* a renewal has written the row */
} Keeper;

/* See lives.c. */
typedef struct Dead
{
	int64_t lease; /* 0: none */
	LeTime ttl;
	LeTime ran;     /* time of the grant, in time in which a manager ran */
	uint64_t lives; /* number of lives at the grant */
} Dead;

typedef struct World
{
	Config conf;
	Rng rng;
	LeEnv env;
	uint32_t epochs[LE_EPOCH_WORDS];
	LeCore *core;
	LeTime clock; /* time of the world */
	LePause pause;
	LeTime now;     /* time of the core */
	LeTime expired; /* all deadlines up to this time were handled */
	uint64_t step;
	int64_t allocated; /* blocks in use */

	Client *clients;
	Durable *durable;
	Mail *mails; /* of each session number */
	uint64_t next_session;
	int64_t fences[MAX_FENCES];
	int nfences;
	Known known[KNOWN];
	uint32_t nknown;
	int64_t leases[64];
	uint32_t lease_roles[64];
	uint32_t nleases;
	int64_t *last_exclusive; /* by kind and name */
	Story *stories;          /* by name */
	int64_t last_change;

	Posted *batch; /* commands since the last one was stored */
	uint32_t nbatch;
	uint32_t batch_cap;
	bool recovering; /* the batch consists of waiters that return after a reload */
	bool ending;     /* no more requests are sent */

	Table tables[TABLES];
	Meta meta;
	Disk disks[DISKS];
	uint32_t newest_timeline; /* of all histories */
	int64_t newest_revision;
	Keeper keeper;
	Dead dead;
	LeLife life;
	LeTime life_began; /* on the core's clock */
	LeTime away;       /* time without a manager, on that clock */
	uint64_t lives;
	uint64_t lsn; /* of the newest batch that is stored */
	uint64_t flushed;
	bool trusting; /* a client got a reply without a flush */
	Model *model;

	char history[HISTORY][240];
	uint64_t nhistory;
	uint64_t commands, batches, reloads, restarts, answers;
} World;

/* --- report.c --- */

extern void sim_watch(World *w);
extern void sim_abort_on_failure(void);
extern void sim_note(World *w, const char *fmt, ...);
extern void sim_fail(World *w, const char *fmt, ...);

/* Lines of history are formatted only if they are shown or may be needed. */
#define NOTE(w, ...)                                                                                         \
	do                                                                                                       \
	{                                                                                                        \
		if (((w)->conf.model && !(w)->conf.mute) || (w)->conf.verbose)                                       \
			sim_note(w, __VA_ARGS__);                                                                        \
	} while (0)

#define ENSURE(w, cond)                                                                                      \
	do                                                                                                       \
	{                                                                                                        \
		if (!(cond))                                                                                         \
			sim_fail(w, "%s:%d: not true: %s", __FILE__, __LINE__, #cond);                                   \
	} while (0)

/* The names of a command, one or several. */
static inline uint32_t
command_names(const LeCommand *cmd)
{
	return cmd->nnames > 0 ? cmd->nnames : 1;
}

static inline LeText
command_name(const LeCommand *cmd, uint32_t i)
{
	return cmd->nnames > 0 ? cmd->names[i] : cmd->name;
}

/* --- world.c --- */

extern uint64_t world_session(World *w, uint32_t sessno);
extern void world_choose(Config *conf);
extern void world_start(World *w, const Config *conf);
extern void world_step(World *w, uint64_t number, uint64_t word);
extern void world_end(World *w);
extern void world_tick_to(World *w, LeTime to);
extern void world_new_manager(World *w, LeTime after);

/* --- lives.c --- */

extern void lives_begin(World *w);
extern void lives_run(World *w);
extern void dead_start(World *w);
extern void dead_check(World *w);

/* --- keeper.c --- */

extern void keeper_start(World *w);
extern void keeper_tend(World *w);
extern void keeper_refused(World *w);
extern LeTime keeper_waits(const World *w);
extern void keeper_restart(World *w, bool lossy);
extern void keeper_end(World *w);

/* --- apart.c --- */

extern double wall_seconds(void);
extern void *apart_alloc(size_t size);
extern bool apart_run(void (*run)(void *arg), void *arg, unsigned limit);

/*
 * --- schedule.c ---
 *
 * The steps of a run: one word for each, made from the seed and the step's number,
 * or read from a file; all of the first n, or only some of them.
 */
typedef struct Schedule
{
	uint64_t n;
	const uint32_t *words; /* NULL: from the seed */
	uint32_t *only;        /* numbers, from 1; NULL: the first n */
} Schedule;

/* The outcome of a run; n: the number of steps up to the failure. */
typedef struct Outcome
{
	bool failed;
	uint64_t n;
	uint64_t commands, answers, batches, reloads, restarts;
} Outcome;

extern void schedule_run(const Config *conf, const Schedule *schedule, Outcome *outcome);
extern bool schedule_try(const Config *conf, const Schedule *schedule, bool quiet, Outcome *outcome);
extern bool schedule_parse(const char *text, Schedule *schedule);
extern void schedule_print(FILE *to, const Schedule *schedule);

#define FUZZ_MAX 65536 /* bytes of a file */

extern void schedule_decode(const uint8_t *data, size_t size, Config *conf, Schedule *schedule);

/* --- minimise.c --- */

extern void minimise(const Config *conf, Schedule *schedule, uint64_t n);

/* --- exhaust.c --- */

extern bool exhaust(uint32_t every, uint64_t seed, double seconds);
extern bool exhaust_replay(const char *text);

/* --- text.c: numbered names, owners and values --- */

extern LeText sim_name(int id);
extern LeText sim_owner(int id);
extern LeText sim_value(int id);
extern int sim_text_id(const char *data);
extern const char *sim_command_name(LeCommandType type);
extern const char *sim_status_name(LeStatus status);

/* --- store.c --- */

extern void store_init(World *w);
extern void store_free(World *w);
extern void store_write(World *w);
extern void store_write_later(World *w);
extern bool store_is_later(const World *w, const SlotRow *row);
extern void store_load(World *w, LeCore *failed);
extern const void *store_row(World *w, int table, uint64_t locator);
extern void store_copy(Table *to, const Table *from);

/* --- restart.c --- */

extern LeTime world_time(World *w);
extern void world_restart(World *w);
extern void world_crash(World *w);
extern void disk_copy(World *w, int disk);
extern void disk_use(World *w, int disk);
extern void disks_hear(World *w);

/* --- flush.c --- */

extern void flush_before(World *w);
extern void flush_told(World *w, const LeCommand *cmd, const LeReply *reply);
extern void flush_all(World *w);
extern void flush_lose(World *w);

/* --- history.c --- */

extern void history_write(World *w);

/* --- post.c --- */

extern void batch_post(World *w, const LeCommand *cmd, LeReply *reply);
extern void batch_post_each(World *w, const LeCommand *cmd);
extern void batch_post_force_role(World *w, const LeCommand *cmd);

/* --- batch.c --- */

extern void keep_names(LeCommand *cmd, LeText *names);
extern void batch_end(World *w);
extern void batch_fail(World *w);
extern void batch_crash(World *w);
extern void batch_reload(World *w);
extern void batch_rebuild(World *w, int64_t next_revision, Loss loss);
extern void durable_reset(Durable *d);
extern void batch_lose_answers(World *w);
extern void batch_expire(World *w);
extern bool batch_mail(World *w);
extern bool world_fenced(void *arg, int64_t token);
extern bool world_flushed(void *arg, uint64_t lsn);

/* --- invariants.c --- */

extern void check_invariants(World *w);
extern void check_undone(World *w, const LeCommand *cmd);
extern void check_forced(World *w, const LeCommand *cmd, int64_t before);

/* --- client.c --- */

extern void client_step(World *w);
extern void client_undo(World *w, uint32_t sessno, uint32_t subxact);
extern void client_end(World *w, uint32_t sessno);
extern void client_unfence(World *w, int i, bool tell);

/* --- model.c, model_check.c, model_told.c --- */

extern Model *model_create(World *w);
extern void model_free(Model *m);
extern void model_apply(Model *m, const LeCommand *cmd, LeTime now, LeReply *reply, const LeReply *actual);
/* Does the entry that this command names by its token hold or wait? */
extern bool model_has(Model *m, const LeCommand *cmd);
extern void model_expire(Model *m, LeTime now);
extern void model_stored(Model *m);
extern void model_reload(Model *m, LeTime now, Loss loss);
extern void model_copy_disk(Model *m, int disk);
extern void model_put_back(Model *m, int disk);
extern void model_told(Model *m, const LeCommand *cmd, const LeReply *reply);
extern void model_lose(Model *m, int disk);
extern void model_expect_answer(Model *m, const LeCommand *cmd, int64_t token);
extern void model_compare(Model *m);
extern void model_compare_refused(Model *m, const LeCommand *cmd);
extern void model_compare_rows(Model *m);
extern void model_compare_reply(Model *m, const LeCommand *cmd, const LeReply *expected,
								const LeReply *actual);
extern void model_compare_answers(Model *m);
extern void model_compare_history(Model *m);

#endif /* SIM_H */
