/*
 * shared/channel.c
 *		Computes the names of the channels on which hints are sent.
 */
#include "postgres.h"

#include "common/cryptohash.h"
#include "common/sha2.h"

#include "shared/channel.h"
#include "shared/shmem.h"

/*
 * Makes a channel name from "le_" and the first 32 hexadecimal digits of the SHA-256 of two concatenated
 * texts.
 */
static void
name_channel(const void *first, Size first_len, const void *second, Size second_len, char *channel)
{
	pg_cryptohash_ctx *hash = pg_cryptohash_create(PG_SHA256);
	uint8 digest[PG_SHA256_DIGEST_LENGTH];

	if (hash == NULL || pg_cryptohash_init(hash) < 0 || pg_cryptohash_update(hash, first, first_len) < 0 ||
		pg_cryptohash_update(hash, second, second_len) < 0 ||
		pg_cryptohash_final(hash, digest, sizeof(digest)) < 0)
		elog(ERROR, "could not compute the name of a channel");
	pg_cryptohash_free(hash);
	memcpy(channel, "le_", 3);
	for (int i = 0; i < (LE_CHANNEL_SIZE - 4) / 2; i++)
		snprintf(channel + 3 + 2 * i, 3, "%02x", digest[i]);
	Assert(strlen(channel) == LE_CHANNEL_SIZE - 1);
}

void
le_channel_name(LeKind kind, LeText name, char *channel)
{
	const char *prefix = kind == LE_KIND_ELECTION ? "election " : "lock ";

	Assert(name.len > 0 && name.len <= LE_MAX_NAME);
	name_channel(prefix, strlen(prefix), name.data, name.len, channel);
}

void
le_channel_of_lease(int64_t lease, char *channel)
{
	name_channel(le_shared->channel_key, sizeof(le_shared->channel_key), &lease, sizeof(lease), channel);
}
