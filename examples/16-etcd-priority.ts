/** A priority queue on etcd: lower numbers first, equal ones in the order in which they were committed. */
import { InvalidOptionError, Queue } from 'millrace'
import { etcdBackend } from 'millrace/etcd'

const hosts = (process.env['ETCD_HOSTS'] ?? 'http://127.0.0.1:2379').split(',')
const backend = etcdBackend({ hosts })
await using mails = new Queue<string>('example-priority', { backend })

// A batch is stored in one step: all of it, in its order, or nothing.
await mails.enqueueAll([
  { payload: 'newsletter, part 1', priority: 900 },
  { payload: 'newsletter, part 2', priority: 900 },
  { payload: 'invoice', priority: 20 },
])
await mails.enqueue('password', { priority: 0 })
await mails.enqueue('survey', { priority: 65_535 })

try {
  await mails.enqueue('never stored', { priority: 65_536 })
} catch (error) {
  console.log(error instanceof InvalidOptionError && error.message)
}

for (let mail = await mails.tryTake(); mail !== undefined; mail = await mails.tryTake()) console.log(mail)

// Prints:
// enqueue.priority must be a whole number from 0 to 65535, not 65536
// password
// invoice
// newsletter, part 1
// newsletter, part 2
// survey
