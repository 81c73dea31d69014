// The golden vectors, which the clients of all languages share.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import test from 'node:test'

/** Tests each case of the vectors of that name. */
export function each(name, run) {
  const { cases } = JSON.parse(readFileSync(new URL(`../../vectors/${name}.json`, import.meta.url), 'utf8'))
  test(`vectors of ${name}`, async () => {
    assert.ok(cases.length > 0)
    for (const [i, c] of cases.entries()) {
      try {
        await run(c)
      } catch (error) {
        error.message = `${name}: ${c.name ?? i}: ${error.message}`
        throw error
      }
    }
  })
}
