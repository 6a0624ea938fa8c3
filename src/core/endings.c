/*
 * core/endings.c
 *		Records how the last LE_ENDINGS tokens and leases ended, so that replies to later
 *		requests can report it.
 */
#include "endings.h"
#include "state.h"

void
le_note_ending(LeCore *core, int64_t token, uint32_t role, LeEnd how, LeTime now)
{
	core->endings[core->nendings++ % LE_ENDINGS] = (LeEnding){token, now, role, (uint8_t) how};
}

void
le_reply_ending(const LeCore *core, const LeCommand *cmd, LeTime now, LeReply *reply)
{
	int64_t token = reply->status == LE_NO_LEASE ? cmd->lease : cmd->token;
	uint64_t kept = core->nendings < LE_ENDINGS ? core->nendings : LE_ENDINGS;

	if (reply->ending != LE_END_NONE)
		return; /* already set, for an evicted holder that has not ended yet */
	for (uint64_t i = 1; i <= kept && token > 0; i++)
	{
		const LeEnding *ending = &core->endings[(core->nendings - i) % LE_ENDINGS];

		if (ending->token != token || ending->role != cmd->role)
			continue;
		reply->ending = ending->how;
		reply->ending_ago = now - ending->at;
		return;
	}
}
