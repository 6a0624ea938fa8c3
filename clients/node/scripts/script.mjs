// Before tsc: the portable edition becomes a module, so that it is in the package however that is bundled.
import { readFileSync, writeFileSync } from 'node:fs'

const sql = readFileSync(new URL('../../../sql/portable/lock_election.sql', import.meta.url), 'utf8')
writeFileSync(new URL('../src/script.ts', import.meta.url), `export default ${JSON.stringify(sql)}\n`)
