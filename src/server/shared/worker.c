/*
 * shared/worker.c
 *		Contains the common code of the background workers of lock_election.
 */
#include "postgres.h"

#include "utils/guc.h"

#include "shared/worker.h"

void
le_worker_init(BackgroundWorker *worker, const char *role, const char *main)
{
	Assert(worker->bgw_main_arg == 0 && worker->bgw_function_name[0] == '\0');
	worker->bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
	worker->bgw_start_time = BgWorkerStart_RecoveryFinished;
	worker->bgw_restart_time = BGW_NEVER_RESTART;
	snprintf(worker->bgw_library_name, sizeof(worker->bgw_library_name), "lock_election");
	snprintf(worker->bgw_function_name, sizeof(worker->bgw_function_name), "%s", main);
	snprintf(worker->bgw_type, sizeof(worker->bgw_type), "lock_election %s", role);
	snprintf(worker->bgw_name, sizeof(worker->bgw_name), "lock_election %s", role);
}

static void
add_name(void *arg)
{
	errcontext("%s", MyBgworkerEntry->bgw_name);
}

void
le_worker_name_context(void)
{
	static ErrorContextCallback context;

	Assert(MyBgworkerEntry != NULL && context.callback == NULL);
	context.callback = add_name;
	context.previous = error_context_stack;
	error_context_stack = &context;
}

void
le_worker_pin(const LeSetting *settings, int n)
{
	for (int i = 0; i < n; i++)
	{
		/* some settings exist only in newer versions of PostgreSQL */
		if (GetConfigOption(settings[i].name, true, false) != NULL)
			SetConfigOption(settings[i].name, settings[i].value, PGC_SUSET, PGC_S_OVERRIDE);
	}
}
