// Runs before tsc: converts the portable edition to a module, so that every bundler includes it in the package.
import { readFileSync, writeFileSync } from 'node:fs'

const sql = readFileSync(new URL('../../../sql/portable/lock_election.sql', import.meta.url), 'utf8')
writeFileSync(new URL('../src/script.ts', import.meta.url), `export default ${JSON.stringify(sql)}\n`)
