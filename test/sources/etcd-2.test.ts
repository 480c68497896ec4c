import { etcdConformance } from './etcd/conformance.js'

await etcdConformance({ first: 1, every: 3 })
