/*
 * backend/guard.c
 *		Rejects commands that add indexes, triggers, rules, columns or constraints to the extension's tables,
 *		or foreign keys that reference these tables.  Also rejects making the tables unlogged, because a crash
 *		would empty them.
 *
 * The store writes below the executor.  So it bypasses triggers, rules and foreign keys, and does not
 * maintain indexes that it does not know.  For example, pg_repack relies on a trigger, so it would lose all
 * rows that are written while it runs.  Commands that drop such objects are allowed, because the objects may
 * have been created while the library was not loaded.
 */
#include "postgres.h"

#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "commands/extension.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/lsyscache.h"

#include "backend/guard.h"

/* Returns the extension's table with this name, or InvalidOid. */
static Oid
our_table(const RangeVar *name)
{
	Oid oid = name != NULL ? RangeVarGetRelid(name, NoLock, true) : InvalidOid;
	Oid extension = OidIsValid(oid) ? getExtensionOfObject(RelationRelationId, oid) : InvalidOid;

	if (!OidIsValid(extension) || extension != get_extension_oid("lock_election", true) ||
		get_rel_relkind(oid) != RELKIND_RELATION)
		return InvalidOid;
	return oid;
}

/*
 * Raises an error if this is a table of the extension.  what: the objects that the command would add, in the
 * plural.
 */
static void
refuse(const RangeVar *name, const char *what)
{
	Oid oid = our_table(name);

	if (!OidIsValid(oid))
		return;
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("cannot add %s to table \"%s.%s\"", what, get_namespace_name(get_rel_namespace(oid)),
					get_rel_name(oid)),
			 errdetail("The table belongs to extension lock_election, which writes it without regard for %s.",
					   what)));
}

static void
refuse_unlogged(const RangeVar *name)
{
	Oid oid = our_table(name);

	if (!OidIsValid(oid))
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg("cannot make table \"%s.%s\" unlogged", get_namespace_name(get_rel_namespace(oid)),
						   get_rel_name(oid)),
					errdetail("The table belongs to extension lock_election, and a crash would empty it.")));
}

static void
guard_constraint(const Node *node)
{
	/* pktable, the referenced table, is set only for a foreign key */
	if (IsA(node, Constraint))
		refuse(((const Constraint *) node)->pktable, "references");
}

/* Checks the elements of a new table, or the constraints of a new column. */
static void
guard_elements(const List *elements)
{
	ListCell *cell;

	foreach (cell, elements)
	{
		const Node *element = lfirst(cell);

		if (IsA(element, ColumnDef))
			guard_elements(((const ColumnDef *) element)->constraints);
		else
			guard_constraint(element);
	}
}

/* Checks ALTER TABLE: new columns and constraints, foreign keys in both, and SET UNLOGGED. */
static void
guard_alter(const AlterTableStmt *stmt)
{
	ListCell *cell;

	foreach (cell, stmt->cmds)
	{
		const AlterTableCmd *cmd = lfirst_node(AlterTableCmd, cell);

		switch (cmd->subtype)
		{
			case AT_AddColumn:
				refuse(stmt->relation, "columns");
				guard_elements(list_make1(cmd->def));
				break;
			case AT_AddConstraint:
				refuse(stmt->relation, "constraints");
				guard_constraint(cmd->def);
				break;
			case AT_SetUnLogged:
				refuse_unlogged(stmt->relation);
				break;
			default:
				break;
		}
	}
}

void
le_guard_tables(const Node *command)
{
	if (creating_extension || IsBinaryUpgrade)
		return;
	switch (nodeTag(command))
	{
		case T_IndexStmt:
			refuse(((const IndexStmt *) command)->relation, "indexes");
			break;
		case T_CreateTrigStmt:
			refuse(((const CreateTrigStmt *) command)->relation, "triggers");
			refuse(((const CreateTrigStmt *) command)->constrrel, "references");
			break;
		case T_RuleStmt:
			refuse(((const RuleStmt *) command)->relation, "rules");
			break;
		case T_CreateStmt:
			guard_elements(((const CreateStmt *) command)->tableElts);
			break;
		case T_AlterTableStmt:
			guard_alter((const AlterTableStmt *) command);
			break;
		default:
			break;
	}
}
