/*
 * notify.h
 *		Notifies systemd.
 */
#ifndef NOTIFY_H
#define NOTIFY_H

/* Notifies systemd.  Does nothing if systemd has not started lockctl. */
extern void lc_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif /* NOTIFY_H */
