/*
 * redis.c
 *		Redis and Valkey: SET NX PX, and scripts that compare before they delete or extend.  There is no queue, so
 *		waiters retry each millisecond.  REDISPORT and REDISPASSWORD name the server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <hiredis/hiredis.h>

#include "harness.h"

#define DELETE_OWN                                                                                           \
	"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
#define EXTEND_OWN                                                                                           \
	"if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) else "     \
	"return 0 end"
#define SHA_SIZE 41

typedef struct Connection
{
	redisContext *context;
	char delete_own[SHA_SIZE];
	char extend_own[SHA_SIZE];
} Connection;

static redisReply *
checked(redisContext *context, void *answer)
{
	redisReply *reply = answer;

	if (reply == NULL)
		die("redis: %s", context->errstr);
	if (reply->type == REDIS_REPLY_ERROR)
		die("redis: %s", reply->str);
	return reply;
}

static void
load(redisContext *context, const char *script, char sha[SHA_SIZE])
{
	redisReply *reply = checked(context, redisCommand(context, "SCRIPT LOAD %s", script));

	snprintf(sha, SHA_SIZE, "%s", reply->str);
	freeReplyObject(reply);
}

static void
redis_open(Client *client)
{
	Connection *conn = calloc(1, sizeof(Connection));

	conn->context = redisConnect("127.0.0.1", atoi(getenv("REDISPORT")));
	if (conn->context == NULL || conn->context->err != 0)
		die("redis: cannot connect");
	freeReplyObject(checked(conn->context, redisCommand(conn->context, "AUTH %s", getenv("REDISPASSWORD"))));
	load(conn->context, DELETE_OWN, conn->delete_own);
	load(conn->context, EXTEND_OWN, conn->extend_own);
	client->conn = conn;
}

static bool
redis_acquire(Client *client, const char *name, int ttl_ms, bool wait)
{
	Connection *conn = client->conn;
	redisReply *reply;
	bool granted;

	(void) wait;
	reply = checked(conn->context,
					redisCommand(conn->context, "SET %s %s NX PX %d", name, client->owner, ttl_ms));
	granted = reply->type == REDIS_REPLY_STATUS;
	freeReplyObject(reply);
	return granted;
}

static bool
one(redisReply *reply)
{
	bool is_one = reply->type == REDIS_REPLY_INTEGER && reply->integer == 1;

	freeReplyObject(reply);
	return is_one;
}

static bool
redis_release(Client *client, const char *name)
{
	Connection *conn = client->conn;

	return one(checked(conn->context, redisCommand(conn->context, "EVALSHA %s 1 %s %s", conn->delete_own,
												   name, client->owner)));
}

static redisReply *
next_reply(redisContext *context)
{
	void *reply;

	if (redisGetReply(context, &reply) != REDIS_OK)
		die("redis: %s", context->errstr);
	return checked(context, reply);
}

/* Sends a pipeline of all acquires, and then one of the releases of the granted names. */
static int
redis_each(Client *client, char names[][40], int n, int ttl_ms)
{
	Connection *conn = client->conn;
	bool granted[n];
	int held = 0;

	for (int i = 0; i < n; i++)
		redisAppendCommand(conn->context, "SET %s %s NX PX %d", names[i], client->owner, ttl_ms);
	for (int i = 0; i < n; i++)
	{
		redisReply *reply = next_reply(conn->context);

		granted[i] = reply->type == REDIS_REPLY_STATUS;
		freeReplyObject(reply);
	}
	for (int i = 0; i < n; i++)
	{
		if (granted[i])
			redisAppendCommand(conn->context, "EVALSHA %s 1 %s %s", conn->delete_own, names[i],
							   client->owner);
	}
	for (int i = 0; i < n; i++)
	{
		if (granted[i] && one(next_reply(conn->context)))
			held++;
	}
	return held;
}

static bool
redis_renew(Client *client, const char *name, int ttl_ms)
{
	Connection *conn = client->conn;

	return one(checked(conn->context, redisCommand(conn->context, "EVALSHA %s 1 %s %s %d", conn->extend_own,
												   name, client->owner, ttl_ms)));
}

static void
redis_fill(Client *client, int64_t first, int64_t last)
{
	Connection *conn = client->conn;

	for (int64_t i = first; i <= last; i++)
		redisAppendCommand(conn->context, "SET held%lld %s NX PX 3600000", (long long) i, client->owner);
	for (int64_t i = first; i <= last; i++)
		freeReplyObject(next_reply(conn->context));
}

static const System systems[] = {{
	.name = "redis",
	.open = redis_open,
	.acquire = redis_acquire,
	.release = redis_release,
	.renew = redis_renew,
	.campaign = redis_acquire,
	.resign = redis_release,
	.renew_term = redis_renew,
	.each = redis_each,
	.fill = redis_fill,
}};

int
main(int argc, char **argv)
{
	return harness_main(argc, argv, systems, 1);
}
