/*
 * names.h
 *		Checks the names of locks, and passes them to CMD.
 */
#ifndef NAMES_H
#define NAMES_H

/* Ends the program if a name is empty or too long.  "what" is "lock" or "election". */
extern void lc_check_names(const char *const *names, int n, const char *what);
/*
 * Sets LOCK_NAME and LOCK_NAMES for CMD.  Ends the program if these variables, or all arguments and variables
 * of CMD together, are too long for the system.  Must be called before a lock is acquired.
 */
extern void lc_set_environment(const char *const *names, int n, char *const *command);

#endif /* NAMES_H */
