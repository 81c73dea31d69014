// The calls of a quota-agent.

import { randomBytes } from 'node:crypto'
import { performance } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { AGAIN, Backoff, mayRepeat } from './backoff.js'
import { statedWait } from './fields.js'
import { Held } from './held.js'
import { bodyOf, decided, keyOf, Malformed, Problem, readDecision, totals, Unavailable } from './model.js'
import { NotSent, Poster } from './post.js'

/** Requests of one decide. */
export const MAX_REQUESTS = 1024

const seconds = () => performance.now() / 1000

/**
 * Asks a quota-agent at HOST:PORT or unix:PATH. index.d.ts has the options. Decisions never throw because the agent is
 * away: the failure mode decides. They throw Problem where the question is a mistake.
 */
export class Client {
  /** Units that were let pass while the agent was away; they are in no ledger. */
  unaccounted = 0
  #options
  #poster
  #backoff
  #held
  #awayUntil = 0

  constructor(address, options = {}) {
    const o = { timeout: 2, failureMode: 'closed', retries: 2, connections: 8, held: 4096, longestHold: 1, ...options }
    if (o.failureMode !== 'open' && o.failureMode !== 'closed') {
      throw new RangeError(`failureMode is ${JSON.stringify(o.failureMode)}; open or closed`)
    }
    if (!(o.timeout > 0 && o.timeout <= 3600 && o.retries >= 0 && o.connections >= 1)) {
      throw new RangeError('timeout is above 0 and at most 3600, retries 0 or more, connections 1 or more')
    }
    this.#options = o
    this.#backoff = new Backoff({ retries: o.retries })
    this.#held = new Held(o.held, o.longestHold)
    this.#poster = o.poster ?? new Poster(address, o.connections)
  }

  /** Closes all connections. */
  close() {
    this.#poster.close()
  }

  /** Decides one request. */
  async allow(attributes, { units = 1, costs } = {}) {
    return (await this.decide([{ attributes, units, costs }]))[0]
  }

  /** Decides 1 to 1,024 requests in one call, each by itself. */
  async decide(requests) {
    if (requests.length < 1 || requests.length > MAX_REQUESTS) {
      throw new RangeError(`${requests.length} requests; 1 to ${MAX_REQUESTS}`)
    }
    const decisions = requests.map((r) => this.#deniedBefore(r))
    const asked = requests.filter((_, i) => !decisions[i])
    if (asked.length > 0) {
      const answers = (await this.#ask(asked)).values()
      decisions.forEach((d, i) => (decisions[i] = d ?? answers.next().value))
    }
    return decisions
  }

  async #ask(requests) {
    let decisions
    try {
      const answer = await this.#guarded('decide', { requests: requests.map(bodyOf), timeout_ms: this.#timeoutMs() })
      decisions = answer.decisions
      if (!Array.isArray(decisions) || decisions.length !== requests.length) {
        throw new Malformed(`not ${requests.length} decisions`)
      }
      decisions = decisions.map(readDecision)
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      return requests.map(({ units = 1 }) => this.#blind(units))
    }
    requests.forEach((r, i) => this.#remember(r, decisions[i]))
    return decisions
  }

  /** Reserves the most that a request may cost, for 1 to 3,600 seconds. */
  async reserve(attributes, { units = 1, costs, expires = 60 } = {}) {
    const request = { attributes, units, costs }
    const made = (decision, id, has = request) => new Reservation(this.#calls, has, decision, id)
    const denial = this.#deniedBefore(request)
    if (denial) return made(denial, '')
    try {
      const body = { ...bodyOf(request), expires_seconds: expires, timeout_ms: this.#timeoutMs() }
      const answer = await this.#guarded('reserve', body)
      const decision = readDecision(answer.decision)
      const id = answer.reservation?.id
      if (decision.allowed && typeof id !== 'string') throw new Malformed('allowed, and no reservation')
      this.#remember(request, decision)
      return made(decision, id ?? '', answer.reservation?.reserved) // older agents do not say
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      return made(this.#blind(units), '')
    }
  }

  /**
   * Reserves, and runs the block with the reservation. Its end is the reservation's, unless commit or cancel was: one
   * of these that failed is repeated. Without one, it commits what use said, else all that was reserved, or cancels where
   * the block throws.
   */
  async withReservation(attributes, options, block) {
    const reservation = await this.reserve(attributes, options)
    let failed = true
    try {
      const result = await block(reservation)
      failed = false
      return result
    } finally {
      await reservation.end(failed)
    }
  }

  // What a reservation needs of its client.
  #calls = {
    blind: () => this.#blind(0), // the commit will bill it
    timeoutMs: () => this.#timeoutMs(),
    call: (name, body) => this.#call(name, body),
  }

  /** Half of the call's time: the agent answers, and spends nothing, before the caller gives up. */
  #timeoutMs() {
    return Math.max(1, Math.floor(this.#options.timeout * 500))
  }

  #deniedBefore(request) {
    const held = this.#held.ask(keyOf(request), seconds())
    return held && { ...held.denial, retryAfter: held.left }
  }

  #remember(request, decision) {
    if (!decision.allowed) this.#held.deny(keyOf(request), decision.retryAfter, decision, seconds())
  }

  /** The failure mode's decision. */
  #blind(units) {
    if (this.#options.failureMode === 'closed') return decided(false, 'unknown', 503, 1)
    this.unaccounted += units
    return decided(true, 'unknown', 200, 0)
  }

  /** A call that the failure mode can answer: while the agent is away, it is only tried now and then. */
  async #guarded(name, body) {
    if (seconds() < this.#awayUntil) throw new Unavailable('the agent was away a moment ago')
    try {
      return await this.#call(name, body)
    } catch (error) {
      if (error instanceof Unavailable) {
        this.#awayUntil = seconds() + this.#backoff.longest * (0.5 + Math.random() / 2)
      }
      throw error
    }
  }

  /** Makes a call, and makes it again where that does no harm. Throws Problem or Unavailable. */
  async #call(name, body) {
    const keyed = (name === 'decide' || name === 'reserve') && this.#options.retries > 0
    const until = seconds() + this.#options.timeout
    const post = { path: `/v1/${name}`, body: JSON.stringify(body), key: keyed ? randomBytes(16).toString('hex') : '' }
    for (let attempt = 0; ; attempt++) {
      const got = await this.#poster.post(post, Math.max(1, (until - seconds()) * 1000)).catch((error) => error)
      const { error, again, stated } = judge(name, got)
      if (!error) return readObject(got)
      const wait = this.#backoff.wait({ attempt, again, stated, left: until - seconds(), place: Math.random() })
      if (wait === null) throw error
      await sleep(wait * 1000)
    }
  }
}

/** A reservation: what a request may cost, until it is known what it did. */
export class Reservation {
  #calls
  #units
  #costs
  #used = null
  #total = null // what the last commit said, failed or not
  #cancelled = false // cancel came after it
  #ended

  constructor(calls, has, decision, id) {
    this.#calls = calls
    this.decision = decision
    this.id = id // any client may commit it; '' where the agent has none, because of the failure mode
    // Reserved so far: less than was asked for where the policy knows what is likely.
    this.#units = decision.allowed ? has.units : 0
    this.#costs = decision.allowed ? { ...has.costs } : {}
    this.#ended = !decision.allowed
  }

  get allowed() {
    return this.decision.allowed
  }

  /** The units of a cost that are reserved. To use more, extend before; where that is denied, stop. */
  reserved(cost = 'requests') {
    return cost === 'requests' ? this.#units : (this.#costs[cost] ?? 0)
  }

  /** Notes what has been used so far, in all. The agent hears of it with the next extend. */
  use({ units = 1, costs } = {}) {
    this.#used = totals(units, costs)
  }

  /** Reserves more, all or nothing. */
  async extend({ units = 0, costs = {} } = {}) {
    if (this.#ended) throw new RangeError('the reservation has ended, or was denied')
    const decision = this.id ? await this.#extend(units, costs) : this.#calls.blind()
    if (decision.allowed) {
      this.#units += units
      for (const [name, more] of Object.entries(costs)) this.#costs[name] = (this.#costs[name] ?? 0) + more
    }
    return decision
  }

  async #extend(units, costs) {
    const body = { id: this.id, ...totals(units, costs), timeout_ms: this.#calls.timeoutMs() }
    if (this.#used) body.used = this.#used
    try {
      return readDecision((await this.#calls.call('extend', body)).decision)
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      return this.#calls.blind()
    }
  }

  /** Ends the reservation with what the request cost in all. Resolves to {late}: it had expired. */
  async commit({ units = 1, costs } = {}) {
    if (!this.allowed) throw new RangeError('a request that was denied costs nothing')
    this.#total = totals(units, { ...costs }) // a copy, for the caller may change costs before end repeats it
    this.#cancelled = false
    let late = false
    if (this.id) late = (await this.#calls.call('commit', { id: this.id, ...this.#total })).late === true
    this.#ended = true
    return { late }
  }

  /** Ends the reservation: the request cost nothing. */
  async cancel() {
    this.#cancelled = true
    if (this.id) await this.#calls.call('cancel', { id: this.id })
    this.#ended = true
  }

  /** Ends the reservation as withReservation does, if it has not ended. */
  async end(failed = false) {
    if (this.#ended) return
    if (this.#cancelled || this.#total) {
      // The caller's last word, which did not get through.
      try {
        await (this.#cancelled ? this.cancel() : this.commit(this.#total))
      } catch (error) {
        if (!failed) throw error // else the block's own error goes on
      }
    } else if (this.#used) await this.commit(this.#used)
    else if (failed) await this.cancel()
    else await this.commit({ units: this.#units, costs: this.#costs })
  }
}

/** What became of a call: its error if any, whether it may be made again, and the wait that is stated. */
export function judge(name, got) {
  const repeatable = name !== 'extend' // decide and reserve by their key; commit and cancel have the same end twice
  if (got instanceof Error) {
    const again = mayRepeat({ repeatable, failure: got instanceof NotSent ? 'connect' : 'lost' })
    return { error: new Unavailable(`${name}: ${got.message}`, { cause: got }), again, stated: null }
  }
  const { status } = got
  if (status === 200) return { error: null, again: false, stated: null }
  const stated = statedWait(got.header, Date.now() / 1000)
  if (status === 409 && (name === 'decide' || name === 'reserve')) {
    return { error: new Unavailable(`${name}: an earlier attempt is under way`), again: true, stated }
  }
  if (status >= 500 || AGAIN.has(status)) {
    return { error: new Unavailable(`${name}: answered ${status}`), again: mayRepeat({ repeatable, status }), stated }
  }
  return { error: readProblem(got), again: false, stated }
}

function parse(text) {
  try {
    const value = JSON.parse(text)
    return value !== null && typeof value === 'object' && !Array.isArray(value) ? value : null
  } catch {
    return null
  }
}

function readObject(got) {
  const answer = parse(got.body)
  if (!answer) throw new Malformed('the answer is no JSON object')
  return answer
}

function readProblem(got) {
  const type = (got.header('Content-Type')[0] ?? '').split(';')[0].trim()
  const said = (type === 'application/problem+json' && parse(got.body)) || {}
  return new Problem(got.status, String(said.title ?? ''), String(said.detail ?? ''))
}
