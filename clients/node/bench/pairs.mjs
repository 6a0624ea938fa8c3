// Measures pairs of acquire and release, one after the other, with two plain statements of the driver, and with a
// session; then many concurrent pairs with a session.
//   node bench/pairs.mjs [SECONDS]     on the server of PGHOST, ...; prints the medians of alternating rounds
import { LockElection } from 'lock-election'
import pg from 'pg'

const seconds = Number(process.argv[2] ?? 2)
const rounds = 5
const client = new pg.Client()
await client.connect()
const session = await LockElection.connect()

const together = async (n, name) => await Promise.all(Array.from({ length: n }, async (_, i) =>
  await (await session.acquire(name(i))).release()))
const ways = {
  bare: async name => {
    const { rows } = await client.query('SELECT acquire_lock($1) AS token', [name])
    await client.query('SELECT release_lock($1, $2)', [name, rows[0].token])
  },
  session: async name => await (await session.acquire(name)).release(),
  'session, 100 at once': async name => await together(100, i => `${name} ${i}`),
  'session, 8 on one name': async name => await together(8, () => name)
}
const pairs = { bare: 1, session: 1, 'session, 100 at once': 100, 'session, 8 on one name': 8 }
const results = Object.fromEntries(Object.keys(ways).map(way => [way, []]))

async function measure (way) {
  const begin = performance.now()
  const { user, system } = process.cpuUsage()
  let n = 0
  while (performance.now() - begin < seconds * 1000) {
    await ways[way](`bench ${process.pid}`)
    n += pairs[way]
  }
  const { user: after, system: later } = process.cpuUsage()
  return { us: (performance.now() - begin) * 1000 / n, cpu: (after - user + later - system) / n }
}

for (const way of Object.keys(ways)) await ways[way]('warm up')
for (let round = 0; round < rounds; round++) {
  for (const way of Object.keys(ways)) results[way].push(await measure(way))
}
const median = values => values.sort((a, b) => a - b)[Math.floor(values.length / 2)]
console.log('a pair takes, microseconds        in all   processor of the client')
for (const [way, all] of Object.entries(results)) {
  const [us, cpu] = [median(all.map(one => one.us)), median(all.map(one => one.cpu))]
  console.log(`${way.padEnd(30)} ${us.toFixed(0).padStart(10)} ${cpu.toFixed(0).padStart(25)}`)
}
await session.close()
await client.end()
