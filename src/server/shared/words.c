/*
 * shared/words.c
 *		Returns the words that messages, views and notifications use.
 */
#include "postgres.h"

#include "shared/words.h"

const char *
le_kind_word(LeKind kind)
{
	return kind == LE_KIND_ELECTION ? "election" : "lock";
}

const char *
le_token_word(LeKind kind)
{
	return kind == LE_KIND_ELECTION ? "term" : "token";
}

char *
le_named(LeKind kind, LeText name)
{
	return psprintf("%s \"%.*s\"", le_kind_word(kind), (int) name.len, name.data);
}

const char *
le_how_name(LeHow how)
{
	static const char *const names[] = {
		[LE_HOW_ELECTED] = "elected", [LE_HOW_PROCLAIMED] = "proclaimed",     [LE_HOW_RESIGNED] = "resigned",
		[LE_HOW_EXPIRED] = "expired", [LE_HOW_REVOKED] = "revoked",           [LE_HOW_FORCED] = "forced",
		[LE_HOW_UNDONE] = "undone",   [LE_HOW_DISCONNECTED] = "disconnected", [LE_HOW_EVICTED] = "evicted"};

	if ((int) how < LE_HOW_ELECTED || (int) how >= (int) lengthof(names))
		elog(ERROR, "unknown change %d of an election", (int) how);
	return names[how];
}

const char *
le_end_name(LeEnd end)
{
	static const char *const names[] = {[LE_END_RELEASED] = "released",      [LE_END_EXPIRED] = "expired",
										[LE_END_REVOKED] = "revoked",        [LE_END_FORCED] = "forced",
										[LE_END_EVICTED] = "evicted",        [LE_END_UNDONE] = "undone",
										[LE_END_SESSION] = "disconnected",   [LE_END_TIMEOUT] = "timed out",
										[LE_END_REPLACED] = "joined another"};

	return (int) end > LE_END_NONE && (int) end < (int) lengthof(names) ? names[end] : NULL;
}
