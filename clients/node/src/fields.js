// What an HTTP answer says about coming again: Retry-After (RFC 9110) and RateLimit
// (draft-ietf-httpapi-ratelimit-headers-10), which is a structured field (RFC 9651).

/** Seconds; no stated wait is longer than a year. */
export const LONGEST = 31_536_000

// The bare items of RFC 9651. A number that is too long leaves digits over, which no separator follows.
const STRING = /"(?:[ !#-\[\]-~]|\\["\\])*"/
const ITEM = [
  STRING,
  /-?[0-9]{1,12}\.[0-9]{1,3}/, // decimal
  /-?[0-9]{1,15}/, // integer
  /[A-Za-z*][!#$%&'*+\-.^_`|~:/0-9A-Za-z]*/, // token
  /:[A-Za-z0-9+/=]*:/, // bytes
  /\?[01]/, // boolean
  /@-?[0-9]{1,15}/, // date
  /%"(?:[ !#$&-~]|%[0-9a-f]{2})*"/, // display string
].map((r) => r.source).join('|')
const NAME = new RegExp(STRING, 'y')
const PARAMETER = new RegExp(` *; *([a-z*][a-z0-9_\\-.*]*)(?:=(${ITEM}))?`, 'y')
const COMMA = /[ \t]*,[ \t]*/y
const COUNT = /^(?:[0-9]{1,15}|-0{1,15})$/

/** The members of a RateLimit field; null where it is malformed, and so says nothing. */
export function rateLimit(lines) {
  const text = lines.join(', ').replace(/^ +| +$/g, '')
  const members = []
  let at = 0
  const take = (pattern) => {
    pattern.lastIndex = at
    const found = pattern.exec(text)
    if (found) at = pattern.lastIndex
    return found
  }
  while (at < text.length) {
    if (members.length > 0 && !take(COMMA)) return null
    const name = take(NAME)
    if (!name) return null
    const parameters = new Map()
    for (let p = take(PARAMETER); p; p = take(PARAMETER)) parameters.set(p[1], p[2] ?? '')
    const r = parameters.get('r') ?? ''
    const t = parameters.get('t')
    if (!COUNT.test(r) || (t !== undefined && !COUNT.test(t))) return null
    members.push({
      name: name[0].slice(1, -1).replace(/\\(.)/g, '$1'),
      r: Math.abs(Number(r)),
      t: t === undefined ? null : Math.abs(Number(t)),
    })
  }
  return members
}

const MONTHS = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec']
const CLOCK = '(?<h>[0-9]{2}):(?<min>[0-9]{2}):(?<s>[0-9]{2})'
const DATES = [
  // of RFC 9110: the one that is sent, and two that must still be understood
  new RegExp(`^[A-Z][a-z]{2}, (?<d>[0-9]{2}) (?<mon>[A-Z][a-z]{2}) (?<y>[0-9]{4}) ${CLOCK} GMT$`),
  new RegExp(`^[A-Z][a-z]{5,8}, (?<d>[0-9]{2})-(?<mon>[A-Z][a-z]{2})-(?<y>[0-9]{2}) ${CLOCK} GMT$`),
  new RegExp(`^[A-Z][a-z]{2} (?<mon>[A-Z][a-z]{2}) (?<d>[ 0-9][0-9]) ${CLOCK} (?<y>[0-9]{4})$`),
]

function retryAfter(lines, now) {
  if (lines.length !== 1) return null
  const text = lines[0].replace(/^[ \t]+|[ \t]+$/g, '')
  if (/^[0-9]+$/.test(text)) return Math.min(Number(text), LONGEST)
  for (const pattern of DATES) {
    const date = pattern.exec(text)?.groups
    if (!date) continue
    const [day, h, min, s] = [date.d, date.h, date.min, date.s].map(Number)
    const year = Number(date.y) + (date.y.length > 2 ? 0 : date.y >= '69' ? 1900 : 2000)
    const at = new Date(Date.UTC(year, MONTHS.indexOf(date.mon), day, h, min, s))
    // Date takes 31 November for 1 December, and 25 o'clock for one of the next day.
    const same = at.getUTCMonth() === MONTHS.indexOf(date.mon) && at.getUTCHours() === h &&
      at.getUTCMinutes() === min && at.getUTCSeconds() === s
    return same ? Math.min(Math.max(at.getTime() / 1000 - now, 0), LONGEST) : null
  }
  return null
}

/**
 * How many seconds an answer asks its caller to stay away, 0 to LONGEST; null where it does not say.
 * header returns the lines of a header, whatever the case of its name; now is in Unix seconds.
 */
export function statedWait(header, now) {
  const after = retryAfter(header('Retry-After'), now)
  if (after !== null) return after
  const waits = (rateLimit(header('RateLimit')) ?? []).filter((m) => m.r === 0 && m.t !== null).map((m) => m.t)
  return waits.length > 0 ? Math.min(Math.max(...waits), LONGEST) : null
}
