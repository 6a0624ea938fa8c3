/*
 * history.c
 *		Reads the stored history of elections as an observer would.
 */
#include "sim.h"

static void
read_change(World *w, const LeChange *c)
{
	Story *story = &w->stories[sim_text_id(c->lock->name)];

	ENSURE(w, c->lock->kind == LE_KIND_ELECTION && c->at <= w->now);
	ENSURE(w, c->number > w->last_change && c->elected_at <= c->at);
	ENSURE(w, c->previous == 0 || c->previous == story->last);
	if (c->how == LE_HOW_ELECTED)
	{
		ENSURE(w, story->term == 0 && c->term < c->number);
		story->term = c->term;
		story->value = sim_text_id(c->value);
	}
	else if (c->how == LE_HOW_PROCLAIMED)
	{
		ENSURE(w, story->term == c->term);
		story->value = sim_text_id(c->value);
	}
	else
	{
		ENSURE(w, story->term == c->term && story->value == sim_text_id(c->value));
		story->term = 0;
	}
	story->last = w->last_change = c->number;
}

void
history_write(World *w)
{
	for (const LeChange *c = NULL; (c = le_next_change(w->core, c)) != NULL;)
		read_change(w, c);
}
