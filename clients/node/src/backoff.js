// When a call is made again.

/** Statuses after which the same call may succeed. */
export const AGAIN = new Set([429, 502, 503, 504])

/** Full jitter: the wait is what the server asks for, and a random part of base * 2^attempt. Times are in seconds. */
export class Backoff {
  /** retries: calls beyond the first; base: of the first retry; longest: that the random part may reach. */
  constructor({ retries = 2, base = 0.05, longest = 1 } = {}) {
    Object.assign(this, { retries, base, longest })
  }

  /**
   * Seconds before the call is made again; null if it is not. attempt counts from 0; again says whether the
   * outcome allows it at all; left is what is left of the call's time; place is random in [0, 1). A wait that
   * might not end in time is not begun.
   */
  wait({ attempt, again, stated, left, place }) {
    const spread = Math.min(this.longest, this.base * 2 ** Math.min(attempt, 62))
    if (!again || attempt >= this.retries || (stated ?? 0) + spread > left) return null
    return (stated ?? 0) + spread * place
  }
}

/**
 * Whether an outcome allows the call to be made again: a status, or a failure without one. What was never sent
 * ('connect') always may; else only what does no harm twice.
 */
export function mayRepeat({ repeatable, status, failure }) {
  return failure === 'connect' || (repeatable && (failure === 'lost' || AGAIN.has(status)))
}
