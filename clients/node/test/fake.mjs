// A clock that is moved by hand, and a server of one database that knows as much SQL as the library sends.
import { Engine } from '../dist/esm/engine.js'
import { LockElection } from '../dist/esm/session.js'

export async function settle () {
  for (let i = 0; i < 5; i++) await new Promise(resolve => setImmediate(resolve))
}

export class FakeTime {
  now = 0
  offset = 1.7e12
  timers = new Set()
  mono = () => this.now
  wall = () => this.now + this.offset

  set = (fn, ms) => {
    const timer = { fn, at: this.now + Math.max(ms, 0) }
    this.timers.add(timer)
    return timer
  }

  clear = timer => { this.timers.delete(timer) }
  keep = () => this.set(() => {}, Infinity)

  // Time goes by, and all that is due runs when it is due.
  async pass (ms) {
    const end = this.now + ms
    for (;;) {
      await settle()
      const next = [...this.timers].sort((a, b) => a.at - b.at)[0]
      if (next === undefined || next.at > end) break
      this.timers.delete(next)
      this.now = Math.max(this.now, next.at)
      next.fn()
    }
    this.now = end
    await settle()
  }

  // Time goes by, and nothing runs: the loop of events is blocked.
  block (ms) { this.now += ms }
}

const fail = (code, message = code) => Object.assign(new Error(message), { severity: 'ERROR', code })

export class FakeServer {
  leases = new Map()
  places = [] // of all names, in the order of arrival: name, token, lease, owner, kind
  revision = 1000
  pid = 100
  standby = false
  notify = 'all'
  hears = true
  down = false
  pooled = false
  schema = 'le' // null: the extension is not there
  validity = undefined // milliseconds; undefined: the TTL
  log = []
  plans = []
  wires = new Set()
  backends = new Set()

  constructor (time) { this.time = time }

  // What happens to the next statement that fits: 'lose' (done, the connection ends without an answer), 'drop' (the
  // same, not done), 'hang' (done, no answer), an error to throw, or a delay of the answer in ms.
  plan (pattern, what) { this.plans.push({ pattern, what }) }

  sent (pattern) { return this.log.filter(text => pattern.test(text)) }

  dial = events => {
    const wire = { events, channels: new Set(), pid: ++this.pid }
    this.wires.add(wire)
    this.backends.add(String(wire.pid))
    return {
      connect: async () => {
        this.log.push('connect')
        if (this.down) throw new Error('connection refused')
      },
      pid: () => this.pooled ? 0 : wire.pid,
      query: (text, values = []) => this.query(wire, text, values),
      destroy: async () => { this.wires.delete(wire) }
    }
  }

  cut () {
    for (const wire of [...this.wires]) wire.events.ended(new Error('cut'))
  }

  async query (wire, text, values) {
    this.log.push(text)
    const index = this.plans.findIndex(({ pattern }) => pattern.test(text))
    const [{ what } = {}] = index >= 0 ? this.plans.splice(index, 1) : []
    if (what instanceof Error) throw what
    if (what === 'drop') {
      wire.events.ended(new Error('cut'))
      return await new Promise(() => {})
    }
    const rows = this.run(wire, text, values)
    if (what === 'lose') wire.events.ended(new Error('cut'))
    if (what === 'lose' || what === 'hang') return await new Promise(() => {})
    if (typeof what === 'number') await new Promise(resolve => this.time.set(resolve, what))
    return rows
  }

  run (wire, text, values) {
    if (/quote_ident/.test(text)) {
      return [[this.schema, this.standby ? 't' : 'f', String(wire.pid), this.notify, `start ${wire.pid}`, 'app']]
    }
    if (/LISTEN/.test(text)) return this.listen(wire, text)
    if (/pg_terminate_backend/.test(text)) return this.backends.delete(values[0]) ? [['t']] : []
    const [, schema, name] = /\b(le\d*)\.(\w+)\(/.exec(text)
    if (schema !== this.schema) throw fail('3F000', `schema "${schema}" does not exist`)
    return this[name](values, wire)
  }

  listen (wire, text) {
    for (const [, un, channel] of text.matchAll(/(UN)?LISTEN (\w+)/g)) wire.channels[un ? 'delete' : 'add'](channel)
    const [, self] = /NOTIFY (\w+)/.exec(text) ?? []
    if (self !== undefined && this.hears) wire.events.notified(self, '')
    return []
  }

  announce (place) {
    for (const wire of this.wires) {
      if (this.hears && wire.channels.has(`c_${place.name}`)) wire.events.notified(`c_${place.name}`, `{"token":"${place.token}"}`)
    }
  }

  expire () {
    for (const [id, lease] of this.leases) {
      if (this.time.now < lease.until) continue
      this.leases.delete(id)
      this.remove(place => place.lease === id)
    }
  }

  remove (which) {
    const before = this.places.filter(place => this.holds(place))
    const gone = this.places.filter(which)
    this.places = this.places.filter(place => !which(place))
    for (const place of this.places) if (this.holds(place) && !before.includes(place)) this.announce(place)
    return gone.length > 0
  }

  holds (place) { return this.places.find(other => other.name === place.name) === place }

  take (name, owner, lease) {
    if (name === '') throw fail('22023', 'name must not be empty')
    const place = { name, owner, lease, token: String(++this.revision) }
    this.places.push(place)
    return place
  }

  alive (id) {
    this.expire()
    const lease = this.leases.get(id)
    if (lease === undefined) throw fail('LE001', 'no such lease')
    return lease
  }

  grant_lease ([ttl]) {
    const id = String(++this.revision)
    this.leases.set(id, { ttl: parseFloat(ttl), until: this.time.now + parseFloat(ttl) })
    return [[id]]
  }

  keep_alive ([id]) {
    this.expire()
    const lease = this.leases.get(id)
    if (lease === undefined) return [[null]]
    lease.until = this.time.now + lease.ttl
    return [[String(this.validity ?? lease.ttl)]]
  }

  revoke_lease ([ids]) {
    for (const id of [ids].flat()) {
      this.leases.delete(id)
      this.remove(place => place.lease === id)
    }
    return [['t']]
  }

  try_acquire_each ([names, owner, lease]) {
    this.alive(lease)
    return names.map(name => [this.places.some(place => place.name === name) ? null : this.take(name, owner, lease).token])
  }

  enqueue_each ([names, owner, lease]) {
    this.alive(lease)
    if (names.includes('')) throw fail('22023', 'name must not be empty')
    return names.map(name => {
      const place = this.take(name, owner, lease)
      return [place.token, this.holds(place) ? 't' : 'f', `c_${name}`]
    })
  }

  enqueue_candidate ([election, owner, lease]) { return this.enqueue_each([[election], owner, lease]) }

  resign ([election, term]) { return this.release_each([[election], [term]]) }

  release_each ([names, tokens]) {
    return names.map((name, i) => [this.remove(place => place.name === name && place.token === tokens[i]) ? 't' : 'f'])
  }

  release_lock ([name, token]) {
    if (/ ms$/.test(token)) return [['f']] // a NULL token, and hold_for
    return this.release_each([[name], [token]])
  }

  is_leader ([names, tokens]) {
    this.expire()
    return names.flatMap((name, i) =>
      this.places.some(place => place.token === tokens[i] && this.holds(place)) ? [[String(i + 1)]] : [])
  }

  lease_holds ([id]) {
    this.alive(id)
    return this.places.filter(place => place.lease === id)
      .map(place => ['lock', place.name, place.token, this.holds(place) ? 't' : 'f', `c_${place.name}`, place.owner])
  }
}

// A session of a TTL of 30 s with a server of its own.
export async function start ({ ttl = 30_000, servers = 1, ...settings } = {}) {
  const time = new FakeTime()
  const all = Array.from({ length: servers }, () => Object.assign(new FakeServer(time), settings))
  const engine = new Engine({ ttl, name: 'test', time, dials: all.map(server => server.dial) })
  const states = []
  engine.onState = state => states.push(state)
  await engine.open()
  return { time, server: all[0], servers: all, engine, session: new LockElection(engine), states }
}

export { fail }
