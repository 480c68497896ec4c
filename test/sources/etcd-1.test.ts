import { etcdConformance } from './etcd/conformance.js'

await etcdConformance({ first: 0, every: 3 })
