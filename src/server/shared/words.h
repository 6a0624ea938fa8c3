/*
 * shared/words.h
 *		The words that messages, views and notifications use.
 */
#ifndef LE_WORDS_H
#define LE_WORDS_H

#include "core/command.h"

/* The callers' words: a lock has a token, an election a term. */
extern const char *le_kind_word(LeKind kind);
extern const char *le_token_word(LeKind kind);

/* lock "a": for a message; allocated. */
extern char *le_named(LeKind kind, LeText name);

/* The word for a change of an election: "elected", "resigned", ... */
extern const char *le_how_name(LeHow how);

/* The word for the end of a holder, a place or a lease: "released", "expired", ...; NULL: it is not known. */
extern const char *le_end_name(LeEnd end);

#endif /* LE_WORDS_H */
