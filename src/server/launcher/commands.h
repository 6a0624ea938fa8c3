/*
 * launcher/commands.h
 *		Handles commands that need a database without other sessions.
 */
#ifndef LE_COMMANDS_H
#define LE_COMMANDS_H

/* Installs the hook and the callbacks.  Called from _PG_init, once per process. */
extern void le_commands_init(void);

#endif /* LE_COMMANDS_H */
