/** A FIFO queue on etcd whose messages are taken at most once: two processes, and the takers wait. `ETCD_HOSTS` names it. */
import { Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'

const hosts = (process.env['ETCD_HOSTS'] ?? 'http://127.0.0.1:2379').split(',')
await using jobs = new Queue<string>('example-fifo', { backend: etcdBackend({ hosts }) })
// In earnest it is in another process, on any machine.
await using taker = new Queue<string>('example-fifo', { backend: etcdBackend({ hosts }) })

for (const job of ['first', 'second', 'third']) await jobs.enqueue(job)
console.log(await taker.take(), await taker.take())

// It never waits: what is there, or undefined.
console.log(await taker.tryTake(), await taker.tryTake())

// It waits, but not for ever.
console.log(await taker.take({ timeoutMs: 50 }))

// It is told of what comes; nothing is polled for.
const waiting = taker.take()
await jobs.enqueue('late')
console.log(await waiting)

// An abort takes nothing: what comes later is for the next.
const given = new AbortController()
const aborted = taker.take({ signal: given.signal }).catch((error: Error) => error.name)
given.abort()
console.log(await aborted)
await jobs.enqueue('kept')
console.log(await taker.take())

// Prints:
// first second
// third undefined
// undefined
// late
// AbortError
// kept
