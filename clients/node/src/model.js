// Decisions, and what can go wrong.

/** What all errors of this package are. */
export class QuotaError extends Error {
  constructor(message, options) {
    super(message, options)
    this.name = new.target.name
  }
}

/** The agent refuses the call, and would again: a mistake of the caller, or no such reservation. */
export class Problem extends QuotaError {
  constructor(status, title = '', detail = '') {
    super(detail ? `${status} ${title}: ${detail}` : `${status} ${title}`.trimEnd())
    Object.assign(this, { status, title, detail })
  }
}

/** The agent is away, or its answer did not come in time or cannot be understood. */
export class Unavailable extends QuotaError {}

/** The answer is none of a quota-agent. */
export class Malformed extends Unavailable {}

/** A decision of an agent's answer. Throws Malformed. Times are in seconds; 0 or '' where nothing is known. */
export function readDecision(answer) {
  if (answer === null || typeof answer !== 'object') throw new Malformed('a decision is no object')
  const take = (name, otherwise) => {
    const value = answer[name] ?? otherwise.default
    if (typeof value !== otherwise.type) throw new Malformed(`a decision's ${name} is ${JSON.stringify(value)}`)
    return value
  }
  return {
    allowed: take('allowed', { type: 'boolean' }),
    reason: take('reason', { type: 'string' }),
    status: take('status', { type: 'number' }),
    retryAfter: take('retry_after_seconds', { type: 'number' }),
    limit: take('limit', { type: 'string', default: '' }),
    quota: take('quota', { type: 'number', default: 0 }),
    window: take('window_seconds', { type: 'number', default: 0 }),
    remaining: take('remaining', { type: 'number', default: 0 }),
    reset: take('reset_seconds', { type: 'number', default: 0 }),
    detail: take('detail', { type: 'string', default: '' }),
    cost: take('cost', { type: 'string', default: '' }),
  }
}

/** A decision that no agent made. */
export function decided(allowed, reason, status, retryAfter) {
  return { allowed, reason, status, retryAfter, limit: '', quota: 0, window: 0, remaining: 0, reset: 0, detail: '', cost: '' }
}

/** Units and costs as a body has them. */
export function totals(units, costs) {
  return costs && Object.keys(costs).length > 0 ? { units, costs } : { units }
}

/** A request as a body has it. */
export function bodyOf({ attributes, units = 1, costs }) {
  return { attributes, ...totals(units, costs) }
}

/** The same for the same question, in whatever order its attributes and costs are given. */
export function keyOf({ attributes, units = 1, costs = {} }) {
  const sorted = (o) => Object.entries(o).sort(([a], [b]) => (a < b ? -1 : 1))
  return JSON.stringify([sorted(attributes), units, sorted(costs)])
}
