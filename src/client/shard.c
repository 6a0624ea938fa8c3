/*
 * shard.c
 *		Computes to which of several servers a name belongs, by rendezvous
 *		hashing.
 *
 * Each shard gets a score for the name: the SHA-256 of the shard's name, a zero
 * byte and the lock's name.  The shard with the highest score wins; scores are
 * compared byte by byte.  Every language can compute the same result:
 * docs/operation/scaling.md has the rule and test vectors, which never change.
 */
#include <string.h>

#include "lock_election.h"

#define BLOCK  64
#define DIGEST 32

/* --- SHA-256, FIPS 180-4 --- */

typedef struct le_sha256
{
	uint32_t state[8];
	uint64_t len;
	unsigned char block[BLOCK];
} le_sha256;

static const uint32_t round_constants[64] = {
	0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
	0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
	0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
	0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
	0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
	0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
	0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
	0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t
rotate(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

/* Adds the full block to the state (the compression function of SHA-256). */
static void
mix_block(le_sha256 *sha)
{
	uint32_t w[64], s[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t) sha->block[4 * i] << 24 | (uint32_t) sha->block[4 * i + 1] << 16 |
			   (uint32_t) sha->block[4 * i + 2] << 8 | sha->block[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
			   (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(s, sha->state, sizeof(s));
	for (int i = 0; i < 64; i++)
	{
		uint32_t t1 = s[7] + (rotate(s[4], 6) ^ rotate(s[4], 11) ^ rotate(s[4], 25)) +
					  ((s[4] & s[5]) ^ (~s[4] & s[6])) + round_constants[i] + w[i];
		uint32_t t2 = (rotate(s[0], 2) ^ rotate(s[0], 13) ^ rotate(s[0], 22)) +
					  ((s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]));

		memmove(s + 1, s, 7 * sizeof(s[0]));
		s[4] += t1;
		s[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		sha->state[i] += s[i];
}

static void
sha256_add(le_sha256 *sha, const char *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
	{
		sha->block[sha->len++ % BLOCK] = (unsigned char) data[i];
		if (sha->len % BLOCK == 0)
			mix_block(sha);
	}
}

/* Pads the data, and stores the digest. */
static void
sha256_end(le_sha256 *sha, unsigned char *digest)
{
	uint64_t bits = sha->len * 8;
	char length[8];

	sha256_add(sha, "\x80", 1);
	while (sha->len % BLOCK != BLOCK - sizeof(length))
		sha256_add(sha, "", 1);
	for (int i = 0; i < 8; i++)
		length[i] = (char) (bits >> (56 - 8 * i));
	sha256_add(sha, length, sizeof(length));
	for (int i = 0; i < DIGEST; i++)
		digest[i] = (unsigned char) (sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* --- shards --- */

static void
score(const char *shard, const char *name, unsigned char *digest)
{
	le_sha256 sha = {.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
							   0x1f83d9ab, 0x5be0cd19}};

	sha256_add(&sha, shard, strlen(shard) + 1);
	sha256_add(&sha, name, strlen(name));
	sha256_end(&sha, digest);
}

int
le_shard(const char *name, const char *const *shards, int n)
{
	unsigned char best[DIGEST], digest[DIGEST];
	int found = -1;

	if (name == NULL || shards == NULL)
		return -1;
	for (int i = 0; i < n; i++)
	{
		if (shards[i] == NULL)
			return -1;
		score(shards[i], name, digest);
		if (found >= 0 && memcmp(digest, best, DIGEST) <= 0)
			continue;
		memcpy(best, digest, DIGEST);
		found = i;
	}
	return found;
}
