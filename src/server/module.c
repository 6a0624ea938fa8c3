/*
 * module.c
 *		Initializes the library: settings, shared memory, hooks, the launcher.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "backend/extension.h"
#include "backend/statement.h"
#include "backend/xact.h"
#include "launcher/commands.h"
#include "launcher/launcher.h"
#include "shared/settings.h"
#include "shared/startup.h"

PG_MODULE_MAGIC;

extern PGDLLEXPORT void _PG_init(void);

/* Called by PostgreSQL after it has loaded the library. */
void
_PG_init(void)
{
	/*
	 * if the library is not preloaded, functions that need shared memory report what to add to
	 * postgresql.conf
	 */
	le_settings_define_everywhere();
	if (!process_shared_preload_libraries_in_progress)
		return;
	le_settings_define();
	le_startup_init_hooks();
	le_statement_init();
	le_extension_init();
	le_commands_init();
	le_xact_init();
	le_launcher_register();
}
