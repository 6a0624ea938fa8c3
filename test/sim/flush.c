/*
 * flush.c
 *		How far the log of the server is flushed: a crash takes back what is
 *		stored behind that.
 *
 * A batch is stored and not flushed.  A session flushes the log before it
 * passes an answer on, as far as the core's reply says that the answer rests on
 * it; one with synchronous_commit off does not.  The model remembers what
 * clients were told, whatever the replies say, and looks for it after a crash.
 * Where a session has found nothing to flush, a crash is likely.
 *
 * The state that would be left by a crash is kept as a disk of its own.  A flush
 * goes to the end of the log, also where less was asked for.
 */
#include "sim.h"

/* Does this command's session have synchronous_commit off?  Always the same answer. */
static bool
is_async(const World *w, const LeCommand *cmd)
{
	return rng_mix(cmd->session * 1000003 + cmd->request) % 1000 < w->conf.async_mille;
}

/* A batch is about to be stored. */
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

/* A client is told this, with the newest batch or by it. */
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

/* The server crashes. */
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
