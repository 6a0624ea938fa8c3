/*
 * record.h
 *		Recorded calls; see record.c.
 */
#ifndef TORTURE_RECORD_H
#define TORTURE_RECORD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include <libpq-fe.h>

typedef enum AnswerStatus
{
	ANSWER_OK,
	ANSWER_NULL,  /* NULL, or no row */
	ANSWER_ERROR, /* nothing was done */
	ANSWER_UNKNOWN
} AnswerStatus;

typedef struct Answer
{
	AnswerStatus status;
	char value[3000];  /* columns separated by |, rows by ;, or the SQLSTATE */
	char message[200]; /* of an error */
} Answer;

extern volatile sig_atomic_t stopping;

extern void record_open(const char *path, const char *client, const char *conninfo);
extern bool connected(void);
extern void disconnect(void);
extern bool in_transaction(void);
extern bool call(Answer *answer, const char *what, const char *sql);
/* One call for n operations, if it returns a row for each of them, which begins with its name. */
extern bool call_each(Answer *answers, int n, const char *const *what, const char *sql);
extern bool callf(Answer *answer, const char *what, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
extern void pause_ms(int ms);

#endif /* TORTURE_RECORD_H */
