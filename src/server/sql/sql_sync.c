/*
 * sql/sql_sync.c
 *		Implements lease_sync(), which does everything that the client of a lease needs in one call.
 *
 *	1.	Read the items.  An item that is invalid, or for which the role lacks the right, gets its own error.
 *		If the items cannot be read at all, the call fails.
 *	2.	If the call consists of releases and does not wait for them, mail them at the commit, as
 *		release_lock() does.  Send everything else to the manager (backend/session_sync.h).
 *	3.	Return the rows: the lease, each item, and the news.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"
#include "utils/lsyscache.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

#include "backend/durability.h"
#include "backend/pending.h"
#include "backend/session_mailbox.h"
#include "backend/session_request.h"
#include "backend/session_sync.h"
#include "backend/snapshot.h"
#include "shared/channel.h"
#include "shared/compat.h"
#include "shared/releases.h"
#include "shared/settings.h"
#include "shared/words.h"
#include "sql/sql_args.h"
#include "sql/sql.h"

LE_FUNCTION(le_lease_sync);

/* Microseconds; maximum wait of a call with a NULL wait whose releases must be durable. */
#define WAIT_OF_RELEASES (1 * LE_SECOND)

/* The texts of an item, in the order in which they are passed. */
enum
{
	TEXT_ITEM,
	TEXT_ACTION,
	TEXT_NAME,
	TEXT_NUMBER,
	TEXT_OWNER,
	TEXT_VALUE,
	TEXTS
};

/* An item of the call: the number that the client chose for it, and its error, if any. */
typedef struct Asked
{
	int32 number;
	uint32 first; /* index of the item's first LeSyncSpec */
	uint32 names; /* number of the item's LeSyncSpecs; 0 = the item was not sent */
	ErrorData *error;
} Asked;

typedef struct Call
{
	LeSync sync;
	LeSyncSpec *specs;
	Asked *items;
	int nitems;
} Call;

/* --- 1. read the items --- */

/*
 * The SQL function with the same effect as an action, for one name or for several.  A role may request the
 * action only if it may call this function.
 */
typedef struct Single
{
	const char *name;
	int nargs;
	Oid args[6];
} Single;

#define ACQUIRE INTERVALOID, INTERVALOID, TEXTOID, TEXTOID, INT8OID
#define ENQUEUE INTERVALOID, TEXTOID, TEXTOID, INT8OID

/* The word of each action, its function for one name and, if there is one, its function for several names. */
static const struct
{
	const char *word;
	Single one, several;
} actions[LE_SYNC_ACTIONS] = {
	[LE_SYNC_RELEASE] = {"release", {"release_lock", 4, {TEXTOID, INT8OID, INTERVALOID, BOOLOID}}},
	[LE_SYNC_RESIGN] = {"resign", {"resign", 2, {TEXTOID, INT8OID}}},
	[LE_SYNC_TRY_LOCK] = {"try_lock",
						  {"acquire_lock", 6, {TEXTOID, ACQUIRE}},
						  {"acquire_locks", 6, {TEXTARRAYOID, ACQUIRE}}},
	[LE_SYNC_TRY_SHARED] = {"try_shared",
							{"acquire_lock", 6, {TEXTOID, ACQUIRE}},
							{"acquire_locks", 6, {TEXTARRAYOID, ACQUIRE}}},
	[LE_SYNC_TRY_PERMIT] =
		{"try_permit", {"acquire_permit", 6, {TEXTOID, INT4OID, INTERVALOID, INTERVALOID, TEXTOID, INT8OID}}},
	[LE_SYNC_TRY_CANDIDATE] =
		{"try_candidate", {"campaign", 6, {TEXTOID, TEXTOID, INTERVALOID, INTERVALOID, TEXTOID, INT8OID}}},
	[LE_SYNC_ENQUEUE_LOCK] = {"enqueue_lock",
							  {"enqueue_lock", 5, {TEXTOID, ENQUEUE}},
							  {"enqueue_locks", 5, {TEXTARRAYOID, ENQUEUE}}},
	[LE_SYNC_ENQUEUE_SHARED] = {"enqueue_shared",
								{"enqueue_lock", 5, {TEXTOID, ENQUEUE}},
								{"enqueue_locks", 5, {TEXTARRAYOID, ENQUEUE}}},
	[LE_SYNC_ENQUEUE_PERMIT] = {"enqueue_permit",
								{"enqueue_permit", 5, {TEXTOID, INT4OID, INTERVALOID, TEXTOID, INT8OID}}},
	[LE_SYNC_ENQUEUE_CANDIDATE] =
		{"enqueue_candidate", {"enqueue_candidate", 5, {TEXTOID, TEXTOID, INTERVALOID, TEXTOID, INT8OID}}},
	[LE_SYNC_PROCLAIM] = {"proclaim", {"proclaim", 3, {TEXTOID, INT8OID, TEXTOID}}},
};

static void
bad_items(const char *detail)
{
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("items cannot be read"),
					errdetail_internal("%s", detail)));
}

/* Returns the action with this word.  Raises an error if there is none. */
static LeSyncAction
read_action(LeText word)
{
	for (int action = 0; action < LE_SYNC_ACTIONS; action++)
	{
		if (strlen(actions[action].word) == word.len &&
			memcmp(actions[action].word, word.data, word.len) == 0)
			return (LeSyncAction) action;
	}
	bad_items(
		psprintf("There is no action \"%.*s\".", pg_mbcliplen(word.data, (int) word.len, 64), word.data));
	return LE_SYNC_ACTIONS;
}

/* Returns whether the action can be requested for several names together. */
static bool
takes_several(LeSyncAction action)
{
	return actions[action].several.name != NULL;
}

/* Raises 42501 if the role may not call the function of the action, or if that function does not exist. */
static void
check_right(Oid lease_sync, LeSyncAction action, bool several)
{
	const Single *single = several ? &actions[action].several : &actions[action].one;
	Oid function = GetSysCacheOid(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(single->name),
								  PointerGetDatum(buildoidvector(single->args, single->nargs)),
								  ObjectIdGetDatum(get_func_namespace(lease_sync)), 0);

	if (OidIsValid(function) && le_may_execute(function))
		return;
	ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					errmsg("permission denied for function %s", single->name),
					errdetail("lease_sync() requires the right to call the function of each action.")));
}

/* Converts a text of an item with the input function of a type.  Raises an error if the text is null. */
static Datum
read_as(PGFunction type_in, const LeText *text, const char *what)
{
	if (text->data == NULL)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be null", what)));
	return DirectFunctionCall1(type_in, CStringGetDatum(pnstrdup(text->data, text->len)));
}

static int64
read_number(const LeText *text, const char *what)
{
	return DatumGetInt64(read_as(int8in, text, what));
}

/* Reads the number of an item.  The client has chosen this number. */
static int32
read_item_number(const LeText *text)
{
	return DatumGetInt32(read_as(int4in, text, "number of an item"));
}

/* Reads a token.  A number that cannot be a token becomes -1, which matches no holder. */
static int64
read_token(const LeText *text, const char *what)
{
	int64 token = read_number(text, what);

	return token > 0 ? token : -1;
}

/*
 * Checks the texts of an item, and converts them to the form that is sent to the manager.  Raises the same
 * errors as the SQL functions with the same effect.
 */
static void
read_item(const LeText *texts, LeSyncSpec *spec)
{
	LeText value = texts[TEXT_VALUE];

	spec->name =
		le_check_text(texts[TEXT_NAME], le_sync_elects(spec->action) ? "election" : "name", LE_MAX_NAME);

	/* 1. read the members that depend on the action */
	switch (spec->action)
	{
		case LE_SYNC_RELEASE:
			spec->hold_for = le_check_hold_for(value);
			spec->number = read_token(&texts[TEXT_NUMBER], "token");
			return;
		case LE_SYNC_RESIGN:
			spec->number = read_token(&texts[TEXT_NUMBER], "term");
			return;
		case LE_SYNC_PROCLAIM:
			spec->number = read_token(&texts[TEXT_NUMBER], "term");
			spec->value = le_check_text(value, "candidate", LE_MAX_VALUE);
			return;
		case LE_SYNC_TRY_CANDIDATE:
		case LE_SYNC_ENQUEUE_CANDIDATE:
			spec->value = le_check_text(value, "candidate", LE_MAX_VALUE);
			break;
		case LE_SYNC_TRY_PERMIT:
		case LE_SYNC_ENQUEUE_PERMIT:
			spec->number = le_check_permits(read_number(&texts[TEXT_NUMBER], "permits"));
			break;
		default:
			break;
	}

	/* 2. read the owner of an acquire */
	if (texts[TEXT_OWNER].data != NULL)
		spec->owner = le_check_text(texts[TEXT_OWNER], "owner", LE_MAX_OWNER);
}

/*
 * Returns whether an error concerns only its item: invalid data, a missing right, a limit, or a wrong state.
 * All other errors, such as the end of the backend, concern the session.
 */
static bool
is_of_item(int sqlstate)
{
	static const char *const classes[] = {"22", "42", "534", "55", "LE"};
	const char *text = unpack_sql_state(sqlstate);

	for (int i = 0; i < (int) lengthof(classes); i++)
	{
		if (strncmp(text, classes[i], strlen(classes[i])) == 0)
			return true;
	}
	return false;
}

/* Called in PG_CATCH.  Returns the error if it concerns only an item; otherwise re-throws it. */
static ErrorData *
caught(MemoryContext context)
{
	ErrorData *error;

	MemoryContextSwitchTo(context);
	error = CopyErrorData();
	if (!is_of_item(error->sqlerrcode))
		PG_RE_THROW();
	FlushErrorState();
	return error;
}

/* Raises an error if a name occurs twice among the names of an item. */
static void
check_names(const LeSyncSpec *specs, uint32 n)
{
	LeText *names;

	if (n == 1)
		return;
	names = palloc_array(LeText, n);
	for (uint32 i = 0; i < n; i++)
		names[i] = specs[i].name;
	le_check_duplicates(names, (int) n);
}

/*
 * Reads one item with n names into specs.  The texts of its names follow each other.  Returns the item's
 * error, or NULL.
 */
static ErrorData *
try_read(Oid lease_sync, const LeText *texts, LeSyncSpec *specs, uint32 n)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData *volatile error = NULL;

	PG_TRY();
	{
		check_right(lease_sync, specs[0].action, n > 1);
		for (uint32 i = 0; i < n; i++)
		{
			read_item(texts + i * TEXTS, &specs[i]);
			specs[i].more = i + 1 < n;
		}
		check_names(specs, n);
	}
	PG_CATCH();
	{
		error = caught(context);
	}
	PG_END_TRY();
	return error;
}

/* Reads the items.  Consecutive rows with the same number and action are one item with several names. */
static void
read_items(FunctionCallInfo fcinfo, int argument, Call *call)
{
	int ntexts, n;
	LeText *texts;

	if (PG_ARGISNULL(argument))
		return;
	texts = le_array_texts(PG_GETARG_ARRAYTYPE_P(argument), &ntexts);
	n = ntexts / TEXTS;
	if (ntexts % TEXTS != 0)
		bad_items(psprintf("Each item has %d texts; there are %d.", TEXTS, ntexts));
	if (n > LE_SYNC_NAMES)
		bad_items(psprintf("There are %d; at most %d names are possible.", n, LE_SYNC_NAMES));
	call->specs = palloc0_array(LeSyncSpec, n);
	call->items = palloc0_array(Asked, n);
	for (int i = 0, next; i < n; i = next)
	{
		Asked *item = &call->items[call->nitems++];
		LeSyncSpec *specs = &call->specs[call->sync.nitems];
		const LeText *first = texts + i * TEXTS;

		if (call->nitems > LE_SYNC_ITEMS)
			bad_items(psprintf("At most %d are possible.", LE_SYNC_ITEMS));
		if (first[TEXT_ACTION].data == NULL)
			bad_items("An action must not be null.");
		item->number = read_item_number(&first[TEXT_ITEM]);
		item->first = call->sync.nitems;
		for (next = i; next < n; next++)
		{
			const LeText *other = texts + next * TEXTS;

			if (next > i && (other[TEXT_ITEM].data == NULL || other[TEXT_ACTION].data == NULL ||
							 read_item_number(&other[TEXT_ITEM]) != item->number))
				break;
			/* overwrite the spec, because an earlier item with an error may have left texts in it */
			specs[next - i] = (LeSyncSpec){.action = read_action(other[TEXT_ACTION])};
			if (next > i && (specs[next - i].action != specs[0].action || !takes_several(specs[0].action)))
				bad_items(psprintf("Item %d appears twice.", item->number));
		}
		item->error = try_read(fcinfo->flinfo->fn_oid, first, specs, (uint32) (next - i));
		if (item->error == NULL)
		{
			item->names = (uint32) (next - i);
			call->sync.nitems += item->names;
		}
	}
	call->sync.items = call->specs;
	call->sync.results = palloc0_array(LeReply, Max(call->sync.nitems, 1));
}

/* --- 2. mail releases --- */

/* Number of leases in "known"; a session usually keeps only a few leases alive. */
#define LEASES 8

/* The leases whose news this session has read, with the number of losses at that time. */
static struct
{
	int64 lease;
	uint64 session; /* session number, as in the mailbox; DISCARD ALL begins a new session */
	uint32 losses;  /* value of LE_EPOCH_LOSSES; 0 = unknown */
} known[LEASES];

/* Records in "known" that this session has read the news of the lease. */
static void
note_told(const LeSync *sync)
{
	static int newest = 0;
	int i = 0;

	while (i < LEASES && known[i].lease != sync->lease)
		i++;
	if (i == LEASES)
		i = newest = (newest + 1) % LEASES;
	known[i].lease = sync->lease;
	known[i].session = le_my_mailbox->session;
	known[i].losses = sync->renewal.status == LE_OK && sync->durable ? sync->told.losses : 0;
}

/*
 * Returns true if, up to the last command that the manager has applied, no lock on the lease was lost since
 * this session last read the news of the lease.  Returns false if no manager is running, because only a
 * manager counts losses.
 */
static bool
has_lost_nothing(int64 lease)
{
	LeDatabase *db = le_my_database();

	for (int i = 0; i < LEASES; i++)
	{
		if (known[i].lease == lease && known[i].session == le_my_mailbox->session)
			return pg_atomic_read_u32(&db->running) != 0 && known[i].losses != 0 &&
				   *(volatile uint32 *) &db->epochs[LE_EPOCH_LOSSES] == known[i].losses;
	}
	return false;
}

/*
 * Returns whether all items are releases of locks that can be mailed at this commit.  A resign is not mailed,
 * because observers read the history, which does not contain the resign until the manager has applied it.
 */
static bool
may_be_mailed(FunctionCallInfo fcinfo, const Call *call)
{
	Size size = 0;

	if (call->sync.nitems == 0 || le_release_waits() || TransactionIdIsValid(GetTopTransactionIdIfAny()) ||
		!le_call_is_computed_with(fcinfo))
		return false;
	for (uint32 i = 0; i < call->sync.nitems; i++)
	{
		const LeSyncSpec *spec = &call->specs[i];

		if (spec->action != LE_SYNC_RELEASE || spec->number <= 0 || spec->hold_for > 0)
			return false;
		size += le_release_size(spec->name.len);
	}
	return size <= LE_RELEASES_SIZE;
}

/*
 * Mails the releases at the commit.  Returns false if a lock may have been lost, if no manager is running, or
 * if earlier requests or releases are unfinished.  As in le_granted_take(), first announces the release to
 * the manager, then checks for losses.
 */
static bool
mail_releases(const Call *call)
{
	if (le_my_mailbox == NULL || !le_pending_is_free() || !le_pending_begin_async())
		return false;
	if (!has_lost_nothing(call->sync.lease))
	{
		le_pending_cancel_async();
		return false;
	}
	for (uint32 i = 0; i < call->sync.nitems; i++)
	{
		const LeSyncSpec *spec = &call->specs[i];

		le_pending_add_async(spec->number, LE_KIND_LOCK, spec->name, LE_PENDING_ALL, call->sync.lease);
	}
	return true;
}

/* --- 3. return the rows --- */

/* A row of lease_sync(), with its columns in the order in which SQL declares them. */
typedef struct Row
{
	const Asked *item;
	const char *event;
	const char *kind;
	LeText name;
	int64 token;
	int64 queue_position; /* 0 = none */
	LeText owner;
	const char *reason;
	const ErrorData *error;

	/* for the row of the lease; otherwise NULL */
	const LeSync *sync;
} Row;

/* Adds a row.  Members of Row that are not set become NULL. */
static void
put_row(ReturnSetInfo *rsinfo, const Row *row)
{
	const ErrorData *error = row->error;
	const LeSyncTold *told = row->sync != NULL && row->sync->answered ? &row->sync->told : NULL;
	LeTime validity = told != NULL ? row->sync->validity : 0;
	char channel[LE_CHANNEL_SIZE];
	LeTuple tuple = {0};

	le_tuple_add_if(&tuple, row->item != NULL, Int32GetDatum(row->item != NULL ? row->item->number : 0));
	le_tuple_add_string(&tuple, row->event);
	le_tuple_add_string(&tuple, row->kind);
	le_tuple_add_text(&tuple, row->name);
	le_tuple_add_if(&tuple, row->token != 0, Int64GetDatum(row->token));
	le_tuple_add_if(&tuple, row->queue_position != 0, Int64GetDatum(row->queue_position));
	le_tuple_add_text(&tuple, row->owner);
	le_tuple_add_string(&tuple, row->reason);
	le_tuple_add_string(&tuple, error != NULL ? unpack_sql_state(error->sqlerrcode) : NULL);
	le_tuple_add_string(&tuple, error != NULL ? error->message : NULL);
	le_tuple_add_string(&tuple, error != NULL ? error->detail : NULL);
	le_tuple_add_string(&tuple, error != NULL ? error->hint : NULL);

	/* columns of the lease, if the manager has replied */
	if (told != NULL && le_notify & LE_NOTIFY_WAITERS)
		le_channel_of_lease(row->sync->lease, channel);
	le_tuple_add_if(&tuple, validity > 0, validity > 0 ? le_interval_datum(validity) : 0);
	le_tuple_add_if(&tuple, told != NULL, Int64GetDatum(told != NULL ? told->incarnation : 0));
	le_tuple_add_if(&tuple, told != NULL, Int64GetDatum(told != NULL ? (int64) told->seen : 0));
	le_tuple_add_if(&tuple, told != NULL && row->sync->durable,
					BoolGetDatum(told != NULL && told->from_start));
	le_tuple_add_string(&tuple, told != NULL && le_notify & LE_NOTIFY_WAITERS ? channel : NULL);
	le_tuple_put(rsinfo, &tuple);
}

/*
 * Returns the error of an item that the manager has rejected, as the SQL function with the same effect would
 * raise it, or NULL.
 */
static ErrorData *
refusal(const LeSyncSpec *spec, const LeSync *sync, const LeReply *result)
{
	MemoryContext context = CurrentMemoryContext;
	ErrorData *volatile error = NULL;
	LeCommand cmd = {.type = le_sync_releases(spec->action)     ? LE_CMD_RELEASE
							 : spec->action == LE_SYNC_PROCLAIM ? LE_CMD_PROCLAIM
																: LE_CMD_ACQUIRE,
					 .kind = le_sync_elects(spec->action) ? LE_KIND_ELECTION : LE_KIND_LOCK,
					 .name = spec[result->which].name,
					 .token = spec->number,
					 .permits = (int32) spec->number,
					 .lease = sync->lease,
					 .role = sync->role};

	if (result->status == LE_QUEUED && cmd.type != LE_CMD_PROCLAIM)
		return NULL;
	PG_TRY();
	{
		le_check_reply(&cmd, result);
	}
	PG_CATCH();
	{
		error = caught(context);
	}
	PG_END_TRY();
	return error;
}

/* Returns the outcome of an item that was carried out. */
static const char *
event_of(const LeSyncSpec *spec, const LeReply *result)
{
	if (result->status == LE_NOT_HELD)
		return "not_held";
	if (le_sync_releases(spec->action))
		return "released";
	if (spec->action == LE_SYNC_PROCLAIM)
		return "proclaimed";
	return result->status == LE_QUEUED ? "queued" : result->status == LE_OK ? "granted" : "not_granted";
}

/* Returns whether the item was carried out, but is not yet as durable as required. */
static bool
is_pending(const LeSyncSpec *spec, const LeSync *sync, const LeReply *result)
{
	if (sync->durable || (result->status != LE_OK && result->status != LE_QUEUED))
		return false;
	return !le_sync_releases(spec->action) || spec->hold_for > 0 || le_release_waits();
}

/* Adds the row of an item, with its result or its error. */
static void
put_item(ReturnSetInfo *rsinfo, const Call *call, const Asked *item)
{
	const LeSync *sync = &call->sync;
	const LeSyncSpec *spec = &call->specs[item->first];
	const LeReply *result = &sync->results[item->first];
	ErrorData unwritable = {.sqlerrcode = sync->sqlstate,
							.message = sync->message,
							.hint = (char *) le_answer_hint(sync->sqlstate)};
	Row row = {.item = item, .event = "error", .error = item->error};

	/* 1. find the item's error, if any */
	if (item->error == NULL)
	{
		row.kind = le_kind_word(le_sync_elects(spec->action) ? LE_KIND_ELECTION : LE_KIND_LOCK);
		row.name = spec->name;
		row.owner = spec->owner;
		if (sync->sqlstate != 0)
			row.error = &unwritable;
		else if (!sync->told.applied)
			return; /* an old call: the item was not carried out */
		else
			row.error = refusal(spec, sync, result);
	}

	/* 2. without an error, add the result */
	if (row.error == NULL)
	{
		bool pending = is_pending(spec, sync, result);

		row.event = pending ? "pending" : event_of(spec, result);
		if (!pending && !le_sync_releases(spec->action))
			row.token = result->token;
		if (!pending)
			row.queue_position = result->position; /* 0 unless the item is queued */
	}
	put_row(rsinfo, &row);
}

/* Adds the row of one item of news. */
static void
put_news(ReturnSetInfo *rsinfo, const LeNewsItem *news)
{
	const char *name = (const char *) (news + 1);
	Row row = {.event = news->granted ? "granted" : "queued", .token = news->token};

	if (news->ending != LE_END_NONE)
		row.event = news->granted ? "evicted" : "lost";
	if (news->ending != LE_END_NONE && !news->granted)
		row.reason = le_end_name((LeEnd) news->ending);
	else
	{
		row.kind = le_kind_word((LeKind) news->kind);
		row.name = (LeText){name, news->name_len};
		row.owner = (LeText){news->has_owner ? name + news->name_len : NULL, news->owner_len};
	}
	put_row(rsinfo, &row);
}

/* Adds all rows: the lease, its items, and the news. */
static void
put_rows(ReturnSetInfo *rsinfo, Call *call)
{
	LeSync *sync = &call->sync;

	/* news that is not durable is returned by a later call */
	if (!sync->durable)
	{
		sync->told.seen = sync->told.from_start ? 0 : sync->seen;
		resetStringInfo(&sync->news);
	}
	put_row(rsinfo, &(Row){.event = "lease", .sync = sync});
	for (int i = 0; i < call->nitems; i++)
		put_item(rsinfo, call, &call->items[i]);
	for (int at = 0; at < sync->news.len;)
	{
		const LeNewsItem *news = (const LeNewsItem *) (sync->news.data + at);

		put_news(rsinfo, news);
		at += (int) le_news_size(news);
	}
}

/* --- the function --- */

/* Implements lease_sync(lease, call, seen_incarnation, seen_news, items, wait). */
Datum
le_lease_sync(PG_FUNCTION_ARGS)
{
	Call call = {0};
	LeSync *sync = &call.sync;
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;

	le_check_can_attach();
	PreventInTransactionBlock(true, "lease_sync()");
	sync->lease = le_arg_number(fcinfo, 0, "lease", 1, PG_INT64_MAX, "It is the number of a lease.");
	sync->call = le_arg_number(fcinfo, 1, "call", 1, PG_INT64_MAX, "Each call has a higher number.");
	sync->incarnation = PG_ARGISNULL(2) ? 0 : PG_GETARG_INT64(2);
	sync->seen = PG_ARGISNULL(3) ? 0 : (uint64) Max(PG_GETARG_INT64(3), 0);
	sync->role = GetUserId();
	read_items(fcinfo, 4, &call);
	InitMaterializedSRF(fcinfo, 0);

	/* a call with a NULL wait has only releases: mail them if possible */
	sync->wait = WAIT_OF_RELEASES;
	if (PG_ARGISNULL(5))
	{
		for (uint32 i = 0; i < sync->nitems; i++)
		{
			if (!le_sync_releases(call.specs[i].action))
				ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("wait must not be null"),
								errdetail("It may be null only if all items are releases.")));
		}
		if (may_be_mailed(fcinfo, &call) && mail_releases(&call))
		{
			sync->told.applied = sync->durable = true;
			put_rows(rsinfo, &call);
			return (Datum) 0;
		}
	}
	else
		sync->wait = Min(le_arg_wait(fcinfo, 5), LE_MAX_TTL);

	/* send everything else to the manager */
	le_sync(sync);
	note_told(sync);
	if (sync->renewal.status == LE_DENIED)
		le_raise_other_lease(sync->lease);
	if (sync->renewal.status == LE_NO_LEASE)
		put_row(rsinfo, &(Row){.event = "gone", .reason = le_end_name((LeEnd) sync->renewal.ending)});
	else
		put_rows(rsinfo, &call);
	return (Datum) 0;
}
