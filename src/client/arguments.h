/*
 * arguments.h
 *		Checks the arguments of calls.
 */
#ifndef LE_CLIENT_ARGUMENTS_H
#define LE_CLIENT_ARGUMENTS_H

#include "types.h"

/*
 * Read a struct of the application, check its size, and write one.  The
 * application may have been built with another version of lock_election.h.
 */
extern le_status le_struct_read(void *to, size_t size, const void *from, const char *name, le_error *error);
extern le_status le_struct_check(const void *to, size_t least, const char *name, le_error *error);
extern void le_struct_write(void *to, const void *from, size_t size);
/* Checks that a text has 1 to max bytes of UTF-8.  "what" is its name in errors. */
extern le_status le_check_text(const char *what, const char *text, int max, le_error *error);
/* Checks that a text of any length is UTF-8. */
extern le_status le_check_utf8(const char *what, const char *text, le_error *error);
extern le_status le_check_names(const char *const *names, int n, le_error *error);
extern le_status le_check_candidacy(const char *election, const char *candidate, le_error *error);
/* Checks that wait_ms is -1 or more. */
extern le_status le_check_wait(int wait_ms, le_error *error);
/* Checks the options of a request for n names. */
extern le_status le_check_how(const le_how *how, int n, le_error *error);
/* Checks that a pointer is not NULL, and clears the error.  "what" is its name in errors. */
extern le_status le_check_pointer(const void *pointer, const char *what, le_error *error);
/*
 * Check that the object is not NULL, and that it was not inherited from the
 * parent process by a fork.  Clear the error.
 */
extern le_status le_check_session(const le_session *session, le_error *error);
extern le_status le_check_hold(const le_hold *hold, le_error *error);

#endif /* LE_CLIENT_ARGUMENTS_H */
