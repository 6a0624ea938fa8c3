// Package schema has the entities of the example.
package schema

import (
	"entgo.io/ent"
	"entgo.io/ent/dialect/entsql"
	"entgo.io/ent/schema"
	"entgo.io/ent/schema/field"
)

// Balance is a row of table balance.
type Balance struct{ ent.Schema }

// Annotations names the table.
func (Balance) Annotations() []schema.Annotation {
	return []schema.Annotation{entsql.Annotation{Table: "balance"}}
}

// Fields are the columns besides id.
func (Balance) Fields() []ent.Field { return []ent.Field{field.Int("amount")} }
