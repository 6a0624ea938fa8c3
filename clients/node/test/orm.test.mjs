// The programs of orm/: what they write in time is written, what they write late is refused.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { after, afterEach, before, test } from 'node:test'
import pg from 'pg'
import { closeAll, fresh, killAll, open, root, run, sql } from './helper.mjs'

const programs = ['knex', 'drizzle', 'sequelize', 'typeorm', 'prisma']
const [major, minor] = process.versions.node.split('.').map(Number)
let skip = false
if (!existsSync(`${root}orm/node_modules`)) skip = 'the packages of orm/ are not installed'
else if (major < 20 || (major === 20 && minor < 19)) skip = 'Prisma and TypeORM need Node.js 20.19'

const node = (file, ...args) => {
  try {
    // Prisma's client needs none of its engines, and there may be no network to download them.
    const env = { ...process.env, CHECKPOINT_DISABLE: '1', PRISMA_SCHEMA_ENGINE_BINARY: process.execPath }
    execFileSync(process.execPath, [file, ...args], { cwd: `${root}orm`, env, encoding: 'utf8', stdio: 'pipe' })
  } catch (error) {
    throw new Error(`${file}: ${error.stdout}${error.stderr}`)
  }
}

before(() => { if (!skip) node('node_modules/prisma/build/index.js', 'generate', '--schema', 'schema.prisma') })
afterEach(killAll)
after(closeAll)

for (const name of programs) {
  test(`a late write through ${name}`, { skip }, async () => {
    // All that an ORM could take for a parameter.
    const lock = fresh("it's :late? $1 @p %s {0} \\ é")
    const amount = async () => (await sql('SELECT amount FROM balance'))[0].amount
    // Refuses an update whose transaction has no fence, such as one on another connection than the fence.
    await sql(`DROP TABLE IF EXISTS balance; CREATE TABLE balance (id int PRIMARY KEY, amount int);
      INSERT INTO balance VALUES (1, 0);
      CREATE TRIGGER guard BEFORE UPDATE ON balance EXECUTE FUNCTION fence_guard(${pg.escapeLiteral(lock)})`)
    const program = run([`orm/${name}.mjs`, lock])
    await program.prints(/^ready/)
    program.child.stdin.write('5\n')
    await program.prints(/^added/)
    assert.equal(await amount(), 5)
    await sql('SELECT force_release_lock($1)', [lock])
    const next = await (await open()).acquire(lock)
    const said = program.lines.length
    program.child.stdin.write('7\n')
    await program.prints(/^LockLostError: .*is not held by token/, said) // the server's message
    program.child.stdin.end('9\n')
    await program.exits()
    assert.equal(program.code, 0, program.lines.join('\n'))
    assert.match(program.lines.at(-1), /^LockLostError/)
    assert.equal(await amount(), 5)
    await next.release()
    await sql('DROP TABLE balance')
  })
}

test('the types of the transactions', { skip }, async () => {
  const directory = await mkdtemp(`${root}orm/types-`)
  try {
    await writeFile(`${directory}/types.mts`, `
      import { Prisma } from '@prisma/client'
      import type { NodePgDatabase } from 'drizzle-orm/node-postgres'
      import type { Knex } from 'knex'
      import type { Hold } from 'lock-election'
      import type { Sequelize, Transaction } from 'sequelize'
      import type { EntityManager, QueryRunner } from 'typeorm'

      export async function fence (hold: Hold, prisma: Prisma.TransactionClient, drizzle: NodePgDatabase, knex: Knex.Transaction,
        manager: EntityManager, runner: QueryRunner, sequelize: Sequelize, transaction: Transaction): Promise<void> {
        for (const one of [prisma, knex, manager, runner]) await hold.fence(one)
        await drizzle.transaction(async tx => { await hold.fence(tx) })
        await hold.fence({ query: async text => await sequelize.query(text, { transaction }) })
        // @ts-expect-error: Sequelize's transaction runs nothing
        await hold.fence(transaction)
      }
    `)
    node(`${root}node_modules/typescript/bin/tsc`, '--noEmit', '--strict', '--skipLibCheck', '--target', 'ES2022',
      '--module', 'Node16', '--typeRoots', `${root}node_modules/@types`, '--types', 'node', `${directory}/types.mts`)
  } finally {
    await rm(directory, { recursive: true })
  }
})
