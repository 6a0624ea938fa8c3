// node embedded/serve.mjs: runs a server with lock_election until Ctrl-C, and prints how to connect.
import { start } from './index.mjs'

try {
  const server = await start()
  console.log('# Locks in a throw-away PostgreSQL, until Ctrl-C. In another shell:')
  console.log(`export ${Object.entries(server.environment).map(([key, value]) => `${key}=${value}`).join(' ')}`)
  const awake = setInterval(() => {}, 1 << 30)
  for (const signal of ['SIGINT', 'SIGTERM']) {
    process.once(signal, async () => {
      clearInterval(awake)
      await server.close()
    })
  }
} catch (error) {
  console.error(`error: ${error.message}`)
  process.exitCode = 1
}
