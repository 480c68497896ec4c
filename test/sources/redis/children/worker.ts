/** `worker.ts URL handle|hold|exit` */
import { Queue } from 'millrace'
import { redisBackend } from 'millrace/redis'
import { work } from '../../../support/worker.js'

const [, , url = '', what = 'handle'] = process.argv
await work(new Queue<string>('shared', { backend: redisBackend(url), leaseMs: 600, maxDeliveries: 3 }), what)
