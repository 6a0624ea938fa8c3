/*
 * shared/words.h
 *		Returns the words that messages, views and notifications use.
 */
#ifndef LE_WORDS_H
#define LE_WORDS_H

#include "core/command.h"

/* Return the user's words for a kind ("lock", "election") and for its token ("token", "term"). */
extern const char *le_kind_word(LeKind kind);
extern const char *le_token_word(LeKind kind);

/* Returns a palloc'd text for messages, such as: lock "a". */
extern char *le_named(LeKind kind, LeText name);

/* Returns the word for a change of an election: "elected", "resigned", ... */
extern const char *le_how_name(LeHow how);

/*
 * Returns the word for the end of a holder, a place or a lease: "released", "expired", ..., or NULL if the
 * end is unknown.
 */
extern const char *le_end_name(LeEnd end);

#endif /* LE_WORDS_H */
