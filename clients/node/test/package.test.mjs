// The package as npm packs it, in clean projects: ES modules, CommonJS, and TypeScript as strict as it gets.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { after, before, test } from 'node:test'
import { root } from './helper.mjs'

let project
const run = (command, ...args) => {
  try {
    return execFileSync(command, args, { cwd: project, encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] })
  } catch (error) {
    throw new Error(`${command} ${args.join(' ')}: ${error.stdout}${error.stderr}`)
  }
}

before(async () => {
  project = await mkdtemp(`${tmpdir()}/le-package-`)
  await writeFile(`${project}/package.json`, '{"name": "user", "version": "1.0.0"}')
  // LE_PACKAGE: one that was packed before.
  let archive = process.env.LE_PACKAGE
  if (archive === undefined) {
    execFileSync('npm', ['pack', '--silent', '--ignore-scripts', '--pack-destination', project], { cwd: root, stdio: 'ignore' })
    archive = `${project}/${(await readdir(project)).find(name => name.endsWith('.tgz'))}`
  }
  run('npm', 'install', '--silent', '--offline', '--no-audit', '--no-fund', '--legacy-peer-deps', archive)
  for (const scope of ['@types', '@opentelemetry']) await mkdir(`${project}/node_modules/${scope}`)
  // What the user has beside it.
  for (const name of ['pg', '@opentelemetry/api', '@types/node', '@types/pg', 'typescript']) await symlink(`${root}node_modules/${name}`, `${project}/node_modules/${name}`)
})

after(async () => { await rm(project, { recursive: true }) })

test('what is in it', async () => {
  const files = (await readdir(`${project}/node_modules/lock-election`)).sort()
  assert.deepEqual(files, ['LICENSE', 'README.md', 'dist', 'embedded', 'examples', 'package.json'])
})

test('ES modules and CommonJS', async () => {
  const body = `LockElection.connect({ onEvent: spans() }).then(async session => {
    console.log(await session.using('package', (signal, hold) => typeof hold.token))
    await session.close()
  })`
  await writeFile(`${project}/esm.mjs`, `import { LockElection } from 'lock-election'\nimport { spans } from 'lock-election/opentelemetry'\n${body}`)
  await writeFile(`${project}/cjs.cjs`, `const { LockElection } = require('lock-election')\nconst { spans } = require('lock-election/opentelemetry')\n${body}`)
  assert.equal(run('node', 'esm.mjs'), 'bigint\n')
  assert.equal(run('node', 'cjs.cjs'), 'bigint\n')
})

test('nothing that Windows lacks is used', async () => {
  const lacks = ['getuid', 'geteuid', 'getgid', 'getegid', 'getgroups', 'setuid', 'setgid', 'initgroups']
  await writeFile(`${project}/windows.mjs`, `
    Object.defineProperty(process, 'platform', { value: 'win32' })
    for (const name of ${JSON.stringify(lacks)}) delete process[name]
    const { LockElection } = await import('lock-election')
    const session = await LockElection.connect()
    console.log(await session.using('package', (signal, hold) => typeof hold.token))
    await session.close()
    console.log(process.platform, typeof process.getuid)`)
  assert.equal(run('node', 'windows.mjs'), 'bigint\nwin32 undefined\n')
})

test('TypeScript', async () => {
  const program = `
    import { LockElection, LockElectionError, type Hold, type Leader } from 'lock-election'
    import { spans } from 'lock-election/opentelemetry'
    import { Client, Pool } from 'pg'

    export async function main (client: Client, pool: Pool): Promise<bigint> {
      await using session = await LockElection.connect({ connectionString: 'postgresql://a,b/app', ttl: 10_000, onEvent: spans() })
      await using hold: Hold = await session.acquire('invoices', { wait: 5_000, signal: AbortSignal.timeout(1000) })
      const poolClient = await pool.connect()
      await hold.fence(client)
      await hold.fence(poolClient)
      await hold.fence({ query: async text => await client.query(text) })
      const text: string = hold.fenceSql()
      const each: Array<Hold | null> = await session.tryAcquireEach(['a', 'b'])
      const length: number = await session.using('x', signal => each.length + (signal.aborted ? 1 : 0))
      const ran: boolean = await session.once('x', { holdFor: 1000 }, async signal => { signal.throwIfAborted() })
      const election = session.elect('scheduler', 'me', { ttl: 5000 })
      election.on('elected', async (term: bigint, signal: AbortSignal) => { console.log(term, signal, length, ran, text) })
      election.on('lost', why => { console.log(why.code === 'lost', why instanceof LockElectionError) })
      for await (const leader of session.observe('scheduler')) {
        const seen: Leader | null = leader
        console.log(seen?.value, seen?.term)
      }
      const outcome: 'released' | 'lost' | 'unknown' = await hold.release({ holdFor: 5 })
      // @ts-expect-error: a token is no number
      const wrong: number = hold.token
      return outcome === 'released' && wrong > 0 ? hold.token : (await session.campaign('x', 'me')).token
    }
  `
  const options = {
    strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, skipLibCheck: false, noEmit: true,
    target: 'ES2022', lib: ['ES2022', 'ESNext.Disposable'], module: 'Node16', types: ['node']
  }
  await writeFile(`${project}/esm.mts`, program)
  await writeFile(`${project}/cjs.cts`, program)
  await writeFile(`${project}/tsconfig.json`, JSON.stringify({ compilerOptions: options, files: ['esm.mts', 'cjs.cts'] }))
  run('node', 'node_modules/typescript/bin/tsc', '-p', '.')
  const bundler = { ...options, module: 'ESNext', moduleResolution: 'Bundler' }
  await writeFile(`${project}/tsconfig.json`, JSON.stringify({ compilerOptions: bundler, files: ['esm.mts'] }))
  run('node', 'node_modules/typescript/bin/tsc', '-p', '.')
})
