import { describe, expect, it } from 'vitest'
import { RespFramer, type RespValue } from '../support/servers/resp.js'
import { RespExchange } from '../support/servers/resp-exchange.js'

/** A value as a test can say it. */
type Plain = string | { readonly [type: string]: readonly Plain[] }

function plain({ type, text, items }: RespValue): Plain {
  return '*~>%|'.includes(type) ? { [type]: items.map(plain) } : `${type}${text}`
}

function inPieces(wire: string, size: number): Buffer[] {
  const bytes = Buffer.from(wire)
  return Array.from({ length: Math.ceil(bytes.length / size) }, (_, index) =>
    bytes.subarray(index * size, (index + 1) * size),
  )
}

describe('framing', () => {
  const frames: readonly (readonly [wire: string, value: Plain])[] = [
    ['+OK\r\n', '+OK'],
    ['-ERR no\r\n', '-ERR no'],
    [':-12\r\n', ':-12'],
    ['$5\r\na\r\nbc\r\n', '$a\r\nbc'],
    ['$0\r\n\r\n', '$'],
    ['$-1\r\n', '$'],
    ['*-1\r\n', { '*': [] }],
    ['*0\r\n', { '*': [] }],
    ['*2\r\n*0\r\n$-1\r\n', { '*': [{ '*': [] }, '$'] }],
    ['*3\r\n*2\r\n:1\r\n*1\r\n+a\r\n$1\r\nb\r\n-c\r\n', { '*': [{ '*': [':1', { '*': ['+a'] }] }, '$b', '-c'] }],
    ['_\r\n', '_'],
    ['#t\r\n', '#t'],
    [',1.5\r\n', ',1.5'],
    ['(12345678901234567890\r\n', '(12345678901234567890'],
    ['!5\r\nERR x\r\n', '!ERR x'],
    ['=7\r\ntxt:a\r\n\r\n', '=txt:a\r\n'],
    ['%2\r\n+a\r\n:1\r\n+b\r\n*1\r\n:2\r\n', { '%': ['+a', ':1', '+b', { '*': [':2'] }] }],
    ['~2\r\n:1\r\n:2\r\n', { '~': [':1', ':2'] }],
    ['>2\r\n+invalidate\r\n*1\r\n$1\r\nk\r\n', { '>': ['+invalidate', { '*': ['$k'] }] }],
    ['|1\r\n+ttl\r\n:9\r\n$1\r\nv\r\n', '$v'],
    ['*2\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n:2\r\n', { '*': [':1', ':2'] }],
  ]

  it.each([1, 2, 3, 7, 1_000])('gives the same frames and bytes in chunks of %i', (size) => {
    const framer = new RespFramer()
    const seen = inPieces(frames.map(([wire]) => wire).join(''), size).flatMap((chunk) => framer.push(chunk))
    expect(seen.map(({ value }) => plain(value))).toEqual(frames.map(([, value]) => value))
    expect(seen.map(({ bytes }) => bytes.toString())).toEqual(frames.map(([wire]) => wire))
  })

  it('takes a line for a command where clients may send one', () => {
    const [frame] = new RespFramer({ allowsInline: true }).push(Buffer.from('SET a  1\r\n'))
    expect(frame && plain(frame.value)).toEqual({ '*': ['$SET', '$a', '$1'] })
  })

  it.each(['HTTP/1.1 400\r\n', '$x\r\n', '*?\r\n', '*1\r\nGET\r\n'])('refuses %j', (wire) => {
    expect(() => new RespFramer().push(Buffer.from(wire))).toThrow(/^not /)
  })
})

describe('pairing', () => {
  function exchange() {
    const seen: string[] = []
    const both = new RespExchange<string>((command) => {
      seen.push(command.join(' '))
      return command.join(' ')
    })
    const send = (...lines: readonly string[]) => both.requests(Buffer.from(`${lines.join('\r\n')}\r\n`))
    const hear = (wire: string) =>
      both
        .replies(Buffer.from(wire))
        .map(({ to, isLast }) => (to === undefined ? 'push' : `${to}${isLast ? '' : ' …'}`))
    return { seen, send, hear }
  }

  const event = (...words: readonly string[]) =>
    `*${words.length}\r\n${words.map((word) => `$${word.length}\r\n${word}\r\n`).join('')}`

  it('answers in order', () => {
    const { seen, send, hear } = exchange()
    send('GET a', '', 'LRANGE b 0 -1')
    send('PING')
    expect(seen).toEqual(['GET a', 'LRANGE b 0 -1', 'PING'])
    expect(hear('$-1\r\n*1\r\n')).toEqual(['GET a'])
    expect(hear('$1\r\nx\r\n+PONG\r\n')).toEqual(['LRANGE b 0 -1', 'PING'])
  })

  it('takes no list for a message on a connection without subscriptions', () => {
    const { send, hear } = exchange()
    send('LRANGE a 0 -1')
    expect(hear(event('message', 'b', 'c'))).toEqual(['LRANGE a 0 -1'])
  })

  it('waits for one confirmation per channel, with messages in between', () => {
    const { send, hear } = exchange()
    send('SUBSCRIBE a b', 'PING', 'UNSUBSCRIBE', 'PING')
    expect(hear(event('subscribe', 'a', '1') + event('message', 'a', 'hi'))).toEqual(['SUBSCRIBE a b …', 'push'])
    expect(hear(event('subscribe', 'b', '2') + event('pong', ''))).toEqual(['SUBSCRIBE a b', 'PING'])
    expect(hear(event('unsubscribe', 'b', '1') + event('message', 'a', 'hi'))).toEqual(['UNSUBSCRIBE …', 'push'])
    expect(hear(`${event('unsubscribe', 'a', '0')}+PONG\r\n`)).toEqual(['UNSUBSCRIBE', 'PING'])
  })

  it('is told once that there was nothing to unsubscribe from', () => {
    const { send, hear } = exchange()
    send('PUNSUBSCRIBE', 'PING')
    expect(hear('*3\r\n$12\r\npunsubscribe\r\n$-1\r\n:0\r\n+PONG\r\n')).toEqual(['PUNSUBSCRIBE', 'PING'])
  })

  it('takes an error for the answer to a subscription', () => {
    const { send, hear } = exchange()
    send('SSUBSCRIBE a b', 'PING')
    expect(hear('-CROSSSLOT\r\n+PONG\r\n')).toEqual(['SSUBSCRIBE a b', 'PING'])
  })

  it('knows the pushes of RESP3', () => {
    const { send, hear } = exchange()
    send('HELLO 3', 'SUBSCRIBE a', 'GET k')
    expect(hear('%1\r\n+proto\r\n:3\r\n>2\r\n+invalidate\r\n_\r\n')).toEqual(['HELLO 3', 'push'])
    expect(hear('>3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n')).toEqual(['SUBSCRIBE a'])
    expect(hear('>3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nm\r\n$1\r\nv\r\n')).toEqual(['push', 'GET k'])
  })

  it('takes what a monitor is shown for no replies', () => {
    const { send, hear } = exchange()
    send('MONITOR', 'PING')
    expect(hear('+OK\r\n+1.5 [0 127.0.0.1:1] "GET" "a"\r\n')).toEqual(['MONITOR', 'push'])
  })

  it('refuses what it could not follow', () => {
    expect(() => exchange().send('CLIENT REPLY OFF')).toThrow('cannot be followed')
    expect(() => exchange().send('PSYNC ? -1')).toThrow('cannot be followed')
  })
})
