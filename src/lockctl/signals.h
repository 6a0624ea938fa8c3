/*
 * signals.h
 *		Signals that are forwarded to CMD, or end a wait.
 */
#ifndef SIGNALS_H
#define SIGNALS_H

/*
 * Called at program start.  Until lc_signals_fd() is called, a signal ends the
 * program at once, because nothing is held.
 */
extern void lc_signals_start(void);
/* Returns a descriptor from which signals are read from now on. */
extern int lc_signals_fd(void);
/* Returns the next signal, or 0 if there is none. */
extern int lc_signals_next(int fd);
/* Makes this signal, too, be read from the descriptor. */
extern void lc_signals_add(int fd, int signo);
/* Restores the default effect of this signal. */
extern void lc_signals_allow(int signo);
/* Ends the program by this signal, so that a shell loop or script notices the interruption. */
extern void lc_signals_die(int signo) __attribute__((noreturn));
/* Called in a child before exec.  Restores the signal handling with which the program was started. */
extern void lc_signals_restore(void);

#endif /* SIGNALS_H */
