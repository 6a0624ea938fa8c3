/*
 * signals.h
 *		Handles the signals that are forwarded to CMD, or end a wait.
 */
#ifndef SIGNALS_H
#define SIGNALS_H

/*
 * Installs signal handlers at program start.  Until lc_signals_fd() is called, a signal ends the program at
 * once, because no lock is held yet.
 */
extern void lc_signals_start(void);
/* Blocks the signals, and returns a descriptor from which they are read from now on. */
extern int lc_signals_fd(void);
/* Returns the next signal, or 0 if there is none. */
extern int lc_signals_next(int fd);
/* Blocks another signal, which is then read from the descriptor, too. */
extern void lc_signals_add(int fd, int signo);
/* Unblocks a signal, so that it takes effect immediately again. */
extern void lc_signals_allow(int signo);
/* Ends the program with this signal, so that a shell loop or script notices the interruption. */
extern void lc_signals_die(int signo) __attribute__((noreturn));
/* Restores the signal handling with which the program was started.  Called in a child before exec(). */
extern void lc_signals_restore(void);

#endif /* SIGNALS_H */
