/**
 * Denials that say when to come again: until then the same question need not be asked. At most `most` are kept,
 * each for at most `longest` seconds. That bound matters: an operator may raise a limit, or another request give
 * units back, before the time that a denial stated.
 */
export class Held {
  #most
  #longest
  #until = new Map() // the oldest first

  constructor(most, longest) {
    this.#most = most
    this.#longest = longest
  }

  /** Remembers a denial that asks to stay away for `wait` seconds. Beyond the bound the oldest goes. */
  deny(key, wait, denial, now) {
    if (!(wait > 0) || this.#most <= 0) return
    this.#until.delete(key)
    if (this.#until.size >= this.#most) this.#until.delete(this.#until.keys().next().value)
    this.#until.set(key, { until: now + Math.min(wait, this.#longest), denial })
  }

  /** The seconds for which a question is still held, and its denial; null where it has to be asked. */
  ask(key, now) {
    const held = this.#until.get(key)
    if (!held) return null
    if (held.until <= now) {
      this.#until.delete(key)
      return null
    }
    return { left: held.until - now, denial: held.denial }
  }
}
