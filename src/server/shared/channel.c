/*
 * shared/channel.c
 *		The names of the channels on which hints are sent.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "shared/channel.h"

void
le_channel_name(LeKind kind, LeText name, char *channel)
{
	const char *prefix = kind == LE_KIND_ELECTION ? "election " : "lock ";
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	uint8 digest[PG_SHA256_DIGEST_LENGTH];

	if (hash == NULL || pg_cryptohash_init(hash) < 0 ||
		pg_cryptohash_update(hash, (const uint8 *) prefix, strlen(prefix)) < 0 ||
		pg_cryptohash_update(hash, (const uint8 *) name.data, name.len) < 0 ||
		pg_cryptohash_final(hash, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute the name of a channel");
	pg_cryptohash_free(hash);
	Assert(name.len > 0 && name.len <= LE_MAX_NAME);
	memcpy(channel, "le_", 3);
	for (int i = 0; i < (LE_CHANNEL_SIZE - 4) / 2; i++)
		snprintf(channel + 3 + 2 * i, 3, "%02x", digest[i]);
	Assert(strlen(channel) == LE_CHANNEL_SIZE - 1);
}
