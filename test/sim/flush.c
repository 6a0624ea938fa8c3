/*
 * flush.c
 *		The flush position of the server's log: a crash undoes everything that
 *		was stored after it.
 *
 * A batch is stored, but not flushed.  Before a session returns a reply, it
 * flushes the log as far as the core's reply requires, unless its
 * synchronous_commit is off.  The model remembers what clients were told,
 * whatever the replies require, and checks it after a crash.  If a session had
 * nothing to flush, a crash is likely.
 *
 * The state that a crash would leave is kept as a separate disk.  A flush always
 * extends to the end of the log.
 */
#include "sim.h"

/*
 * Returns whether the session of this command has synchronous_commit off: always the same result for a
 * command.
 */
static bool
is_async(const World *w, const LeCommand *cmd)
{
	return rng_mix(cmd->session * 1000003 + cmd->request) % 1000 < w->conf.async_mille;
}

/* Called before a batch is stored. */
void
flush_before(World *w)
{
	if (w->conf.async_mille > 0 && w->flushed == w->lsn)
		disk_copy(w, DISK_FLUSHED);
}

void
flush_all(World *w)
{
	w->flushed = w->lsn;
	w->trusting = false;
}

/* Called when a client gets this reply, from the newest batch or about it. */
void
flush_told(World *w, const LeCommand *cmd, const LeReply *reply)
{
	uint64_t lsn = reply->bound || reply->may_return ? 0 : reply->wrote ? w->lsn : reply->lsn;

	if (w->conf.async_mille == 0 || is_async(w, cmd))
		return;
	if (lsn > w->flushed)
		flush_all(w);
	w->trusting = w->flushed < w->lsn;
	if (w->conf.model)
		model_told(w->model, cmd, reply);
}

/* Simulates a crash of the server. */
void
flush_lose(World *w)
{
	if (w->conf.async_mille == 0 || w->flushed == w->lsn)
		return;
	NOTE(w, "%llu batches lost", (unsigned long long) (w->lsn - w->flushed));
	if (w->conf.model)
		model_lose(w->model, DISK_FLUSHED);
	disk_use(w, DISK_FLUSHED);
}
